"""Evidence `interleaved`: chains that a draft model and a source draft in turns.

Along a target's own text it is measured at every position whether the draft model's token is
accepted there, and how many tokens of the source's continuation the text goes on with. Both hold
for every chain that begins there, however the two take turns: a token of either is accepted only
where all before it were, and then stands at a position of the text.

A source's tokens may also be judged by the draft model before the target sees them (staged
speculation, Spector and Re 2023, arXiv 2308.04623): what the model accepts of them is what it would
have drafted itself. So its tokens are accepted by the target where the model's are, and where the
text has them the model keeps the source's tokens exactly as long as they are the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.evidence.base import Drafting, Rows
from specplan.cost_models.acceptance.evidence.lengths import TraceOfDrafts
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.ops import (
    Accept,
    Adopt,
    Commit,
    Emit,
    Forward,
    Grow,
    Lookup,
    Pick,
    Root,
    Uniform,
    Update,
)
from specplan.ir.plan import Plan, Round
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import TreeType

_OPS = (Root, Grow, Lookup, Pick, Forward, Uniform, Accept, Adopt, Emit, Commit, Update)


@dataclass(frozen=True, slots=True)
class DraftSegment:
    """A stretch of a chain that one of the two drafts.

    Attributes:
        by: the `model`, the `source`, or the source `judged` by the model, which adds a token of
            its own where it rejects one or has none left to judge.
        tokens: drafted; at most so many of a source.
    """

    by: Literal["model", "source", "judged"]
    tokens: int

    @property
    def most(self) -> int:
        """Tokens of the chain that it gives at most."""
        return self.tokens + (self.by == "judged")


@dataclass(frozen=True)
class InterleavedTrace(TraceOfDrafts):
    """What of the text a model and a source would have drafted.

    Attributes:
        longest: tokens of the source's continuations that were compared.
        rows: per prompt, for every position of the target's continuation: 1 where the model's token
            is accepted, else 0; and the tokens of the source that the text goes on with.
    """

    longest: int
    rows: tuple[tuple[tuple[int, int], ...], ...]
    kind: ClassVar[str] = "interleaved"

    @cached_property
    def model(self) -> TraceModel:
        """What the model accepts of itself alone."""
        return TraceModel(self.whole, lengths=True)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A chain that a model and a source draft in turns, however they do."""
        segments = _read(plan, item)
        if segments is None:
            return "turns say nothing of drafts in which model and source take none"
        problem = self.problem_of(segments)
        if problem is not None:
            return problem
        depth = sum(segment.most for segment in segments)
        return Drafting.of_path(demands, depth, self.cut(segments))

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        if isinstance(self.longest, bool) or not isinstance(self.longest, int) or self.longest < 1:
            return f"continuations of {self.longest!r} tokens"
        if not any(self.rows):
            return "holds no measurement"
        for row in self.rows:
            for pair in row:
                if len(pair) != 2 or pair[0] not in (0, 1) or not 0 <= pair[1] <= self.longest:
                    return f"{[*pair]} is out of range"
        return None

    def problem_of(self, segments: Sequence[DraftSegment]) -> str | None:
        """Why it says nothing of a chain; None where it does."""
        most = max((one.tokens for one in segments if one.by != "model"), default=0)
        if most > self.longest:
            return f"{self.longest} tokens of the source were compared, and {most} are drafted"
        return None

    def lengths(self, segments: Sequence[DraftSegment]) -> Rows:
        """Per prompt and position, the tokens accepted of a chain drafted in turns from there."""
        return tuple(tuple(_accepted(*_columns(row), segments).tolist()) for row in self._filled)

    @cached_property
    def whole(self) -> Rows:
        """Tokens accepted of all that the model would draft alone."""
        return tuple(tuple(_runs(_columns(row)[0]).tolist()) for row in self._filled)

    @cached_property
    def _filled(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Prompts with a position."""
        return tuple(row for row in self.rows if row)


def _columns(row: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    places = np.array(row, dtype=np.int64)
    return places[:, 0], places[:, 1]


def _runs(agrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many tokens of the model are accepted in a row from each position on."""
    lengths, run = np.zeros_like(agrees), 0
    for position in range(len(agrees) - 1, -1, -1):
        run = run + 1 if agrees[position] else 0
        lengths[position] = run
    return lengths


def _accepted(
    agrees: NDArray[np.int64], copied: NDArray[np.int64], segments: Sequence[DraftSegment]
) -> NDArray[np.int64]:
    """Tokens accepted from every position; a chain ends with the text at the latest."""
    size = len(agrees)
    runs = np.append(_runs(agrees), 0)
    copies = np.append(copied, 0)
    start = np.arange(size)
    here, going = start.copy(), np.ones(size, dtype=bool)
    for one in segments:
        wanted = np.full(size, one.tokens)
        if one.by == "judged":
            wanted = np.minimum(copies[here], one.tokens) + 1
        given = copies[here] if one.by == "source" else runs[here]
        agreed = np.where(going, np.minimum(given, wanted), 0)
        here = np.minimum(here + agreed, size)
        going &= agreed == wanted
    accepted: NDArray[np.int64] = here - start
    return accepted


@lru_cache(maxsize=1024)
def _read(plan: Plan, item: Round) -> tuple[DraftSegment, ...] | None:
    """See `read_segments`; remembered for the rounds read last."""
    return read_segments(round_types(plan, item))


def read_segments(types: RoundTypes) -> tuple[DraftSegment, ...] | None:
    """Who drafts which stretch of a round's chain; None where no model and source take turns.

    Tokens that a source gives are judged by the model where an `accept` below a tip follows, and
    else by the target alone.
    """
    if not all(isinstance(step.op, _OPS) for step in types.steps):
        return None
    segments: list[DraftSegment] = []
    for step in types.steps:
        op, given = step.op, next(iter(step.gives), None)
        if isinstance(op, Grow | Lookup):
            before = step.reads[op.tree]
            assert isinstance(before, TreeType) and isinstance(given, TreeType)
            alone = op.children in (1, (1,)) and given.is_chain
            if not alone or (isinstance(op, Grow) and given.nodes != before.nodes + 1):
                return None
            one = DraftSegment("model", 1)
            if isinstance(op, Lookup):
                one = DraftSegment("source", op.length)
            segments.append(one)
        elif isinstance(op, Accept) and op.at is not None:
            if not segments or segments[-1].by != "source":
                return None
            segments[-1] = DraftSegment("judged", segments[-1].tokens)
    models = {step.op.model for step in types.steps if isinstance(step.op, Forward)}
    taken = {one.by for one in segments}
    both = "judged" in taken or {"model", "source"} <= taken
    return tuple(segments) if both and len(models) == 2 else None


EVIDENCE = InterleavedTrace
