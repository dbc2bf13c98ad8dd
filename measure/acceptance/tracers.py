"""How each drafter is traced along the target's own texts, and what evidence that gives.

Drafters whose own rounds are run (`specplan.measure.acceptance.run_rounds`) need no tracer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import (
    Beam,
    Drafter,
    FirstLayers,
    Interleaved,
    Model,
    SkipBlocks,
    SmallCache,
    Source,
)
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.evidence.interleaved import InterleavedTrace
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.key import AcceptanceKey
from specplan.ir.blocks import NO_SKIPS
from specplan.measure.acceptance.own_drafts import TeacherText
from specplan.measure.acceptance.pools import pool_places
from specplan.measure.acceptance.retrieved_drafts import RetrievingText
from specplan.measure.acceptance.source_replay import SourceReplay
from specplan.measure.acceptance.teacher import (
    Kept,
    greedy_ranks,
    lookup_lengths,
    sampled_ranks,
    text_logits,
)
from specplan.measure.workbench import Workbench
from specplan.planner import CHUNK, MOST_SKIPPED_DRAFT, SINKS
from specplan.runtime.requests import Request

MOST_RANKS = 16
"""Ranks that are told apart; a child beyond is never worth its node."""
MOST_LOOKED_UP = 32
"""Tokens of a looked-up continuation that are compared."""
POOL_LAYERS = 6
"""Layers of the pools that a beam grows."""
Row = tuple[Any, ...]
"""One entry per position of a target's output."""


@dataclass(frozen=True)
class TracedText:
    """A prompt with what the target goes on with.

    Attributes:
        name: of the prompt.
        request: for the prompt, at the workload's settings.
        output: tokens of the target.
        logits: gives the target's own along the output, `[n, V]`.
    """

    name: str
    request: Request
    output: tuple[int, ...]
    logits: Callable[[], Tensor]

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return [*self.request.prompt_tokens, *self.output]

    @property
    def start(self) -> int:
        """The first token to be drafted for."""
        return len(self.request.prompt_tokens)


@dataclass(frozen=True)
class Tracer:
    """How a drafter is traced.

    Attributes:
        trace: what is accepted at every position of a text.
        evidence: what the rows of all texts are.
        replay: the declared source that drafts; it learns text after text.
    """

    trace: Callable[[TracedText], Row]
    evidence: Callable[[tuple[Row, ...]], Evidence]
    replay: SourceReplay | None = None


def tracer_of(bench: Workbench, key: AcceptanceKey) -> Tracer:
    """The tracer of a key's drafter."""
    drafter = key.drafter
    match drafter:
        case Source(name):
            replay, copy = _copies(bench, key, name)
            evidence: Callable[[tuple[Row, ...]], Evidence] = Lengths
            if name in DRAFT_SOURCES and DRAFT_SOURCES[name].evidence == "pools":
                evidence = partial(Pools, DRAFT_SOURCES[name].longest)
            elif name in DRAFT_SOURCES and DRAFT_SOURCES[name].evidence == "ranks":
                evidence = Ranks
            return Tracer(copy, evidence, replay)
        case Interleaved(_, name):
            replay, copy = _copies(bench, key, name)
            longest = DRAFT_SOURCES[name].longest if name in DRAFT_SOURCES else MOST_LOOKED_UP
            trace = partial(_both, partial(_ranks, bench, key), copy)
            return Tracer(trace, partial(InterleavedTrace, longest), replay)
        case Beam(_, width):
            return Tracer(partial(_pools, bench, drafter), partial(_of_beam, width))
        case SkipBlocks() | SmallCache(model="target"):
            return Tracer(partial(_own_lengths, bench, drafter), Lengths)
    return Tracer(partial(_ranks, bench, key), Ranks)


def _of_beam(width: int, rows: tuple[Row, ...]) -> Pools:
    return Pools(POOL_LAYERS, rows, width)


def _copies(
    bench: Workbench, key: AcceptanceKey, name: str
) -> tuple[SourceReplay | None, Callable[[TracedText], Row]]:
    """A source's replay, None of the text itself, and what is accepted of its copies."""
    if name in DRAFT_SOURCES:
        vocabulary = bench.models["target"].vocab_size
        replay = SourceReplay(DRAFT_SOURCES[name], vocabulary, bench.problem.datastore)
        return replay, lambda text: replay.trace(text.name, text.tokens, text.start, text.logits)
    match = key.match
    assert match is not None, "lookups have suffixes"
    return None, lambda text: tuple(lookup_lengths(text.tokens, text.start, match, MOST_LOOKED_UP))


def _pools(bench: Workbench, drafter: Beam, text: TracedText) -> Row:
    """Places of the text in pools that a draft model grows."""
    model = bench.models[drafter.model]
    return tuple(pool_places(model, text.tokens, text.start, drafter.width, POOL_LAYERS))


def _own_lengths(bench: Workbench, drafter: SkipBlocks | SmallCache, text: TracedText) -> Row:
    """Tokens accepted of drafts of the target, whose keys and values are not its own."""
    target, most = bench.models["target"], MOST_SKIPPED_DRAFT
    if isinstance(drafter, SmallCache) and drafter.retrieved:
        retrieving = RetrievingText(target, text.request, text.output, most)
        return tuple(retrieving.retrieved_lengths(drafter.budget, CHUNK))
    skips = drafter.skips if isinstance(drafter, SkipBlocks) else NO_SKIPS
    teacher = TeacherText(target, text.request, text.output, most)
    return tuple(teacher.lengths(skips, kept=_kept(drafter)))


def _ranks(bench: Workbench, key: AcceptanceKey, text: TracedText) -> Row:
    """Ranks accepted of a model, or of its first layers."""
    drafter, layers = key.drafter, None
    assert isinstance(drafter, Model | FirstLayers | SmallCache | Interleaved)
    role = drafter.name if isinstance(drafter, Model) else drafter.model
    if isinstance(drafter, FirstLayers):
        layers = drafter.layers
    kept = _kept(drafter)
    draft = text_logits(bench.models[role], text.tokens, text.start, layers, kept)
    chains = key.how == "draw" or isinstance(drafter, Interleaved)
    most = 1 if chains else MOST_RANKS
    if key.temperature == 0.0:
        return tuple(greedy_ranks(draft, list(text.output), most))
    return tuple(sampled_ranks(text.logits(), draft, text.request, most))


def _both(
    ranks: Callable[[TracedText], Row], copy: Callable[[TracedText], Row], text: TracedText
) -> Row:
    """Whether a model's token is accepted, and how far a source's copy is."""
    pairs = zip(ranks(text), copy(text), strict=True)
    return tuple((int(rank == 0), copied) for rank, copied in pairs)


def _kept(drafter: Drafter) -> Kept | None:
    """What is read of the text where a drafter reads few cached tokens."""
    return (drafter.budget, SINKS) if isinstance(drafter, SmallCache) else None
