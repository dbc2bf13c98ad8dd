"""The interface of a compiled plan: `Executable`, and the session that decodes one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from specplan.ir.plan import Plan
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source


class Observer(Protocol):
    """A callback for each op that a session runs, for profiling."""

    def __call__(
        self, op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        """Receive one op.

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
    """A forward in words for observers, `0:8 skip=attn.3,mlp.4 no logits`; "" for a whole one.

    Args:
        layers: half-open span that runs, None for all.
        logits: whether there are rows of logits.
        skip: skipped blocks.
    """
    words = [] if layers is None else [f"{layers[0]}:{layers[1]}"]
    words += [_SKIP + ",".join(skip)] if skip else []
    return " ".join([*words, *([] if logits else [NO_LOGITS])])


def read_forward_variant(variant: str) -> tuple[tuple[int, int] | None, bool, tuple[str, ...]]:
    """Layers, whether there are logits, and skipped blocks of a variant by `forward_variant`."""
    layers: tuple[int, int] | None = None
    skip: tuple[str, ...] = ()
    for word in variant.removesuffix(NO_LOGITS).split():
        if word.startswith(_SKIP):
            skip = tuple(word.removeprefix(_SKIP).split(","))
        else:
            start, _, stop = word.partition(":")
            layers = (int(start), int(stop))
    return layers, not variant.endswith(NO_LOGITS), skip


@dataclass(frozen=True, slots=True)
class StepResult:
    """The tokens that one round appended to the texts.

    Attributes:
        tokens: of each request; none of one that was done.
        trips: int64 `[B, L]`, trips of each request in the round's loops that may end early; None
            without such loops.
    """

    tokens: Sequence[Sequence[int]]
    trips: Tensor | None = None


class Session(Protocol):
    """One batch of requests; owns their texts and caches."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of text per row, prompt included."""
        ...

    @property
    def done(self) -> Sequence[bool]:
        """Per row, whether it needs no more tokens."""
        ...

    def prefill(self, observer: Observer | None = None) -> None:
        """Run the prompts through the models, so that the first round is like any other.

        The observer gets one op `prefill` per model, with the longest prompt as its width.
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
        """Free the session's memory; it cannot step any more."""
        ...


@runtime_checkable
class ContinuousSession(Session, Protocol):
    """A session whose requests come and go between rounds."""

    def exchange(self, leaving: Sequence[int], coming: Sequence[Request]) -> int:
        """Let rows go, and begin new requests in rows behind those that stay, in order.

        `prefill` then runs the prompts of the new ones. The state of those that stay is as it was.

        Returns:
            Prompt tokens of the new requests that need not run, because a row that was there
            begins with them too and its caches were copied.

        Raises:
            UsageError: a new request does not fit the models or the memory of the batch.
        """
        ...


class Executable(Protocol):
    """A compiled plan; runs any number of batches.

    Attributes:
        shared: sources that outlive a batch, by name; executables of one plan may share them.
    """

    shared: dict[str, Source]

    @property
    def plan(self) -> Plan:
        """The compiled plan."""
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
        """Let sources forget the requests of earlier batches."""
        ...
