"""The work and memory that an op needs, as sizes: cost models turn them into seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from specplan.ir.blocks import Skips
from specplan.ir.plan import CacheState

Quantity: TypeAlias = Any
"""A number, or an array of numbers, one per load."""


PROBABILITY_COPIES = 4
"""Rows over the vocabulary while a law is made of logits: scaled scores, probabilities, the one-hot
of greedy rows and the law itself, all at once."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of a model over nodes of a round.

    Attributes:
        model: whose pass it is.
        cache: name of the cache; "" for none.
        root: its operands hold the root.
        drafted: drafted nodes of its operands, per request.
        ahead: levels beyond the first, of all nodes together.
        slots: whether these take tokens of their own through the stack, as far as is known.
        rows_ahead: of them, those whose logits some op may read.
        pending: most tokens of text, root included, that it may catch up.
        gives_logits: it gives logits; else it computes states alone.
        spans: half-open spans of layers that run; (None,) for all layers.
        skips: blocks that it leaves out; where a source says which, a set of as many, since blocks
            of a model cost alike.
        way: passes of one way run no node twice in a round.
        own_states: the features that it reads are its own model's, not another's.
        budget: most tokens that the cache keeps, or that heads read of it; None for all.
        whole_heads: key/value heads of all layers together that read the whole cache in any case.
    """

    model: str
    cache: str
    root: bool
    drafted: int
    ahead: int
    slots: bool
    rows_ahead: int
    pending: int
    gives_logits: bool
    spans: tuple[tuple[int, int] | None, ...]
    skips: Skips
    way: str
    own_states: bool
    budget: float | None
    whole_heads: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """An op that is no pass of a model.

    Attributes:
        name: how a device knows it, `keyword` or `keyword:variant`.
        width: nodes worked on, per request.
        view: the part of a cache that it fills; None for every other op. How much work that is
            depends on the text.
    """

    name: str
    width: int = 1
    view: CacheState | None = None


Demand: TypeAlias = Pass | Work


class PassSizes(Protocol):
    """What a pass of a model takes, bytes of all requests."""

    @property
    def always(self) -> Quantity:
        """From its beginning to its end."""

    @property
    def layers(self) -> Quantity:
        """Within the widest layer."""

    @property
    def gathered(self) -> Quantity:
        """Hidden states of the tokens that get logits."""

    @property
    def cast(self) -> Quantity:
        """Logits in the model's own number type."""

    @property
    def logits(self) -> Quantity:
        """What it gives."""


class Sizes(Protocol):
    """How large things are on the machine that is asked about."""

    def probabilities(self, nodes: int) -> Quantity:
        """Bytes of so many rows over the target's vocabulary, of all requests."""
        ...

    def forward(self, model: str, tokens: int, rows: int) -> PassSizes:
        """What a pass takes that computes so many tokens per request, and rows of logits."""
        ...


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that an op needs for a while.

    An op takes two moments: a pass runs its layers in the first and makes logits in the second.

    Attributes:
        name: what it holds.
        size: bytes of all requests.
        first: the moment in which it is made, 0 or 1.
        last: the moment in which it is let go, or who reads it last: ops that read the op's
            `logits`, or the `probs` of the tree that it gives.
        logits: it is over the vocabulary.
    """

    name: str
    size: Quantity
    first: Literal[0, 1] = 0
    last: Literal[0, 1, "logits", "probs"] = 1
    logits: bool = True
