"""How the acceptance of each drafter is traced on prompts, and what evidence the rows make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import (
    TEXT,
    Beam,
    Drawn,
    Fallback,
    FirstLayers,
    Interleaved,
    Model,
    SkipBlocks,
    SmallCache,
    Source,
)
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.evidence.copies import Copies
from specplan.cost_models.acceptance.evidence.depth_ranks import DepthRanks
from specplan.cost_models.acceptance.evidence.exits import Exits
from specplan.cost_models.acceptance.evidence.fallback import FallbackTrace
from specplan.cost_models.acceptance.evidence.interleaved import InterleavedTrace
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.key import AcceptanceKey
from specplan.ir.blocks import NO_SKIPS, read_heads
from specplan.ir.plan import Plan
from specplan.measure.acceptance.continuations import BATCH
from specplan.measure.acceptance.exits import played_along
from specplan.measure.acceptance.heads import depth_of, head_ranks
from specplan.measure.acceptance.own_drafts import RetrievingText, TeacherText
from specplan.measure.acceptance.pools import pool_places
from specplan.measure.acceptance.run_rounds import run_rounds
from specplan.measure.acceptance.source_replay import SourceReplay
from specplan.measure.acceptance.teacher import (
    TracedText,
    copies_along,
    greedy_ranks,
    lookup_lengths,
    sampled_ranks,
    text_logits,
)
from specplan.measure.workbench import Workbench
from specplan.planner import CHUNK, MOST_SKIPPED_DRAFT, POOL, SINKS, WINDOW
from specplan.runtime.executable import Executable
from specplan.runtime.models.cache_parts.observed import Window
from specplan.runtime.models.heads.drafter import Drafter as Drafting
from specplan.runtime.sources.registry import learning_from_all

MOST_RANKS = 16
"""Ranks that are counted one by one; a child beyond is never worth its node."""
MOST_LOOKED_UP = 32
"""Tokens of a looked-up continuation that are compared."""
POOL_LAYERS = 6
"""Layers of the pools that a beam grows."""
Row = tuple[Any, ...]
"""One entry per position of a target's output."""
TraceText = Callable[[TracedText], Row]


@dataclass(frozen=True)
class Tracer:
    """How a drafter is traced.

    Attributes:
        trace: accepted drafts at every position of each of some texts.
        evidence: what the rows of all texts make.
        batch: most texts that are traced together.
        how: the provenance of the rows.
        replay: a declared source that drafts, replayed; it learns text after text.
        learns: the rows of a text depend on the texts traced before it.
    """

    trace: Callable[[Sequence[TracedText]], list[Row]]
    evidence: Callable[[tuple[Row, ...]], Evidence]
    batch: int = 1
    how: str = "teacher forcing on the target's own continuations"
    replay: SourceReplay | None = None
    learns: bool = False

    def remember(self, text: TracedText) -> None:
        """Learn a text whose rows an earlier run stored."""
        if self.replay is not None:
            self.replay.remember(text)

    def rows_of(self, stored: Evidence) -> tuple[Row, ...] | None:
        """The rows that evidence was made of; None if its pools are of another depth."""
        if isinstance(stored, RoundsRun):
            return stored.places
        new = self.evidence(())
        if isinstance(stored, Pools) and isinstance(new, Pools) and stored.layers != new.layers:
            return None
        return tuple(tuple(row) for row in stored.traces)


def rounds_tracer(executable: Executable) -> Tracer:
    """Run the rounds of a plan, as its schedule selects them.

    Texts run one at a time if a source learns from all requests, so that it knows the earlier ones.
    """

    def trace(texts: Sequence[TracedText]) -> list[Row]:
        return list(run_rounds(executable, [text.request for text in texts]))

    batch = 1 if learning_from_all(executable.plan) else BATCH
    return Tracer(trace, RoundsRun.of_places, batch, "the rounds that ran")


def exits_tracer(bench: Workbench, plan: Plan) -> Tracer:
    """Play a plan that leaves the target early along the target's own texts."""

    def trace(texts: Sequence[TracedText]) -> list[Row]:
        return [*played_along(bench, plan, texts).rows()]

    return Tracer(trace, Exits, BATCH, "exits played on a trace of the target's own texts")


def text_tracer(bench: Workbench, key: AcceptanceKey) -> Tracer:
    """Trace a key's drafter along the target's own texts."""
    replay = None
    evidence: Callable[[tuple[Row, ...]], Evidence] = Ranks
    trace: TraceText = partial(_ranks, bench, key)
    match key.drafter:
        case Source(TEXT.name):
            assert key.match is not None, "lookups have suffixes"
            match = key.match

            def trace(text: TracedText) -> Row:
                return tuple(copies_along(text.tokens, text.start, match, MOST_LOOKED_UP))

            evidence = partial(Copies, match[1], MOST_LOOKED_UP)
        case Source(name):
            replay, trace = _source_trace(bench, key, name)
            evidence = _source_evidence(name)
        case Interleaved(_, name):
            replay, copies = _source_trace(bench, key, name)
            longest = DRAFT_SOURCES[name].longest if name in DRAFT_SOURCES else MOST_LOOKED_UP
            trace, evidence = _interleaved(trace, copies), partial(InterleavedTrace, longest)
        case Fallback(source, name):
            replay, copies = _source_trace(bench, key, source)
            depth = depth_of(bench.heads(name)[0]) if _is_head(bench, name) else MOST_LOOKED_UP
            trace = partial(_beside_copies, bench, key, name, depth, copies)
            evidence = partial(FallbackTrace, MOST_LOOKED_UP, depth)
        case Beam(model, width):
            drafts = bench.models[model]

            def trace(text: TracedText) -> Row:
                given = (text.tokens, text.start, width, POOL_LAYERS, text.request)
                return tuple(pool_places(drafts, *given))

            def evidence(rows: tuple[Row, ...]) -> Evidence:
                return Pools(POOL_LAYERS, rows, width)

        case Model(name) | Drawn(name) if _is_head(bench, name):
            heads, drawn = bench.heads(name), isinstance(key.drafter, Drawn)
            depth = depth_of(heads[0])

            def trace(text: TracedText) -> Row:
                return tuple(head_ranks(heads, text, depth, MOST_RANKS, drawn=drawn))

            evidence = partial(DepthRanks, depth)
        case SkipBlocks() | SmallCache(model="target") as drafter:
            trace, evidence = partial(_own_lengths, bench, drafter), Lengths
    learns = replay is not None or isinstance(key.drafter, Interleaved)
    return Tracer(lambda texts: [*map(trace, texts)], evidence, replay=replay, learns=learns)


def _is_head(bench: Workbench, name: str) -> bool:
    """Whether this is no model that drafts alone: a head, or the target's modules."""
    return name not in bench.models or isinstance(bench.models[name], Drafting)


def _source_trace(
    bench: Workbench, key: AcceptanceKey, name: str
) -> tuple[SourceReplay | None, TraceText]:
    """A source's replay (None for the text itself), and how its drafts are traced."""
    if name in DRAFT_SOURCES:
        vocabulary = bench.models["target"].vocab_size
        replay = SourceReplay(DRAFT_SOURCES[name], vocabulary, bench.problem.datastore)
        return replay, replay.trace
    match = key.match
    assert match is not None, "lookups have suffixes"
    return None, lambda text: tuple(lookup_lengths(text.tokens, text.start, match, MOST_LOOKED_UP))


def _source_evidence(name: str) -> Callable[[tuple[Row, ...]], Evidence]:
    source = DRAFT_SOURCES.get(name)
    kind = "lengths" if source is None else source.evidence
    if source is not None and kind == "pools":
        return partial(Pools, source.longest)
    return Ranks if kind == "ranks" else Lengths


def _interleaved(ranks: TraceText, copies: TraceText) -> TraceText:
    """Whether a model's token is accepted, and how far a source's copy is."""
    return lambda text: tuple(
        (int(rank == 0), max(copied, 0))
        for rank, copied in zip(ranks(text), copies(text), strict=True)
    )


def _beside_copies(
    bench: Workbench, key: AcceptanceKey, name: str, depth: int, copies: TraceText, text: TracedText
) -> Row:
    """How far a source's chain is accepted, and a model's or a head's of so many tokens."""
    if _is_head(bench, name):
        ranks = head_ranks(bench.heads(name), text, depth, 1)
    else:
        ranks = [(rank,) * depth for rank in _ranks(bench, key, text)]
    drafted = (_chain_length(ranks[place : place + depth]) for place in range(len(ranks)))
    return tuple(zip(copies(text), drafted, strict=True))


def _chain_length(ranks: Sequence[Sequence[int]]) -> int:
    """Accepted tokens of a chain of best choices, from the ranks at its places by depth."""
    accepted = (place[depth] == 0 for depth, place in enumerate(ranks))
    return next((depth for depth, hit in enumerate(accepted) if not hit), len(ranks))


def _own_lengths(bench: Workbench, drafter: SkipBlocks | SmallCache, text: TracedText) -> Row:
    """Accepted tokens of drafts of the target, whose keys and values are not its own."""
    target, most = bench.models["target"], MOST_SKIPPED_DRAFT
    if isinstance(drafter, SkipBlocks):
        lengths = TeacherText(target, text.request, text.output, most).lengths(drafter.skips)
    elif drafter.how == "retrieved":
        retrieving = RetrievingText(target, text.request, text.output, most)
        lengths = retrieving.retrieved_lengths(drafter.budget, CHUNK)
    elif drafter.how == "observed":
        observing = RetrievingText(target, text.request, text.output, most)
        lengths = observing.observed_lengths(drafter.budget, Window(WINDOW, POOL))
    else:
        teacher = TeacherText(target, text.request, text.output, most)
        window, heads = (drafter.budget, SINKS), read_heads(drafter.heads)
        lengths = teacher.lengths(NO_SKIPS, window=window, retrieval=heads)
    return tuple(lengths)


def _ranks(bench: Workbench, key: AcceptanceKey, text: TracedText) -> Row:
    """Accepted ranks of a model, of its first layers, or of it with a small cache."""
    drafter = key.drafter
    assert isinstance(drafter, Model | FirstLayers | SmallCache | Interleaved | Fallback)
    model = bench.models[drafter.name if isinstance(drafter, Model) else drafter.model]
    layers = drafter.layers if isinstance(drafter, FirstLayers) else None
    window = (drafter.budget, SINKS) if isinstance(drafter, SmallCache) else None
    own = text_logits(model, text.tokens, text.start, layers, window, text.request)
    draft = text.allowed(own)
    chains = key.how == "draw" or isinstance(drafter, Interleaved | Fallback)
    most = 1 if chains else MOST_RANKS
    if key.temperature == 0.0:
        return tuple(greedy_ranks(draft, list(text.output), most))
    return tuple(sampled_ranks(text.logits, draft, text.request, most))
