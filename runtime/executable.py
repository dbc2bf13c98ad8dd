"""What a backend compiles a plan to: an executable, and the session of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specplan.ir.plan import Plan
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source


class Observer(Protocol):
    """Told of each op that a session runs, for profiling."""

    def __call__(
        self, op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        """Take note of one op.

        Args:
            op: keyword of the op, for `accept`, `grow` and `commit` with
                `:rule`, `:how`, and `:chain` or `:tree`; `pick:best` for a choice by score;
                for a `forward` that is not a pass of the whole stack with its logits, `:`
                and its `forward_variant`.
            model: name of the model it runs, or None.
            batch: rows.
            width: tokens or nodes per row.
            context: slots attended to.
            seconds: wall-clock time.
        """
        ...


NO_LOGITS, _SKIP = "no logits", "skip="


def forward_variant(layers: tuple[int, int] | None, logits: bool, skip: Sequence[str] = ()) -> str:
    """A forward in words for observers, `0:8 skip=attn.3,mlp.4 no logits`; "" for a usual one.

    Args:
        layers: half-open span that runs, None for all.
        logits: whether there are rows of logits.
        skip: blocks that are left out.
    """
    words = [] if layers is None else [f"{layers[0]}:{layers[1]}"]
    words += [_SKIP + ",".join(skip)] if skip else []
    return " ".join([*words, *([] if logits else [NO_LOGITS])])


def read_forward_variant(variant: str) -> tuple[tuple[int, int] | None, bool, tuple[str, ...]]:
    """Layers, whether there are logits, and blocks left out, of a word by `forward_variant`."""
    layers: tuple[int, int] | None = None
    skip: tuple[str, ...] = ()
    for word in variant.removesuffix(NO_LOGITS).split():
        if word.startswith(_SKIP):
            skip = tuple(word.removeprefix(_SKIP).split(","))
        else:
            start, _, stop = word.partition(":")
            layers = (int(start), int(stop))
    return layers, not variant.endswith(NO_LOGITS), skip


@dataclass(frozen=True)
class StepResult:
    """What one round appended to the texts.

    Attributes:
        tokens: int64 `[B, W]`, padded with -1.
        counts: int64 `[B]`.
        trips: int64 `[B, L]`, how many trips each request took in the round's loops that may end
            early; None where it has none.
    """

    tokens: Tensor
    counts: Tensor
    trips: Tensor | None = None


class Session(Protocol):
    """One batch of requests on its way; owns their texts and caches."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of text per row, prompt included."""
        ...

    @property
    def done(self) -> Sequence[bool]:
        """Rows that want no more tokens."""
        ...

    def prefill(self, observer: Observer | None = None) -> None:
        """Run the prompts through the models, so that the first round is like any other.

        The observer is told of one op `prefill` per model, its width the longest prompt.
        """
        ...

    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round.

        Emission is cut after the first stop token and at the request's limit; the row is then
        done. Rows that are done emit nothing.
        """
        ...

    def finish(self, row: int) -> None:
        """Mark a row as done from outside, as for a stop string."""
        ...

    def release(self) -> None:
        """Free what the session holds; it cannot step any more."""
        ...


class Executable(Protocol):
    """A compiled plan; run as many batches as you like.

    Attributes:
        shared: sources that outlive a batch, by name; executables of one plan may share them.
    """

    shared: dict[str, Source]

    @property
    def plan(self) -> Plan:
        """What was compiled."""
        ...

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> Session:
        """Begin a batch.

        Args:
            requests: one per row.
            capacity: tokens of text per row to reserve memory for; the requests' need when None.

        Raises:
            UsageError: a request needs more positions than a model has.
        """
        ...

    def forget(self) -> None:
        """Let sources forget what they learned of the requests of earlier batches."""
        ...
