"""What each forward of a plan does, as far as it is known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from specplan.backends.eager.state.slots import Layers
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.ops import Commit, Forward
from specplan.ir.plan import CacheState, Plan, TrackState, walk_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.residency import readings
from specplan.ir.values import Entry
from specplan.runtime.models.modules import Module


@dataclass(frozen=True)
class PassSpec:
    """The part of a model's stack that a forward runs.

    Attributes:
        model: by its role.
        cache: the state it writes; None for none.
        spans: half-open spans of layers, rising; empty ones run nothing.
        segments: spans that its cache keeps apart, all of those that run.
        pending: most text tokens that are caught up, the root included.
        most: tokens of all requests together; None for no bound.
        features: the track that is read; None for the tokens alone.
        shift: nodes above, whose states are read.
        own: what is read are states of the model itself.
        inside: they go on in the middle of its stack.
        keeps: tracks that are written, and after how many layers each of their parts; -1 for all.
        gives: what there are rows of.
        levels: how many tokens ahead its rows look, one number or one per node.
        tells_ahead: whether rows of levels beyond the first are read.
        skips: blocks that are left out.
        block: all tokens of a pass see each other.
        scratch: what is written is no part of the text.
        keys_only: nothing but keys and values is written, all of the state that enters.
        new_nodes: no pass before it in a round runs the same nodes.
        policy: which part of the cached text each head reads; None for all of it.
    """

    model: str
    cache: str | None
    spans: tuple[Layers, ...]
    segments: tuple[Layers, ...]
    pending: int = 1
    most: int | None = None
    features: str | None = None
    shift: int = 0
    own: bool = False
    inside: bool = False
    keeps: tuple[tuple[str, tuple[int, ...]], ...] = ()
    gives: tuple[str, ...] = ("logits",)
    levels: int | tuple[int, ...] = 1
    tells_ahead: bool = False
    skips: Skips = NO_SKIPS
    block: bool = False
    scratch: bool = False
    keys_only: bool = False
    new_nodes: bool = False
    policy: Entry | None = None

    @property
    def most_levels(self) -> int:
        """How many tokens ahead its rows look at most."""
        return self.levels if isinstance(self.levels, int) else max(self.levels)

    @property
    def feeds(self) -> bool:
        """Whether it writes what it reads: all of its text is read before any is written."""
        return any(name == self.features for name, _ in self.keeps)

    @property
    def pieces(self) -> tuple[Layers, ...]:
        """Spans, cut where states are recorded."""
        cuts = {layer for _, layers in self.keeps for layer in layers}
        pieces: list[Layers] = []
        for start, stop in self.spans:
            inner = sorted(cut for cut in cuts if start < cut < stop)
            pieces += zip([start, *inner], [*inner, stop], strict=True)
        return tuple(piece for piece in pieces if piece[0] < piece[1])


def spans_of(op: Forward, layers: int) -> tuple[Layers, ...]:
    """Spans of layers that a forward runs of a model with so many."""
    if not op.layers:
        return ((0, layers),)
    return tuple((span.start, span.stop) for span in op.layers)


def segments_of(plan: Plan, models: Mapping[str, Module]) -> dict[str, tuple[Layers, ...]]:
    """By the name of a cache, spans of its layers, cut wherever a forward begins or ends."""
    segments: dict[str, tuple[Layers, ...]] = {}
    for state in plan.states:
        if not isinstance(state, CacheState):
            continue
        layers = models[state.model].num_layers
        cuts = {0, layers}
        for op in walk_plan(plan):
            if isinstance(op, Forward) and op.cache == state.name:
                for span in spans_of(op, layers):
                    cuts.update(span)
        ends = sorted(cuts)
        segments[state.name] = tuple(pairwise(ends)) or ((0, 0),)
    return segments


def spec_of(
    plan: Plan, op: Forward, layers: int, segments: Mapping[str, tuple[Layers, ...]]
) -> PassSpec:
    """What a forward runs of a model with so many layers."""
    spans = spans_of(op, layers)
    cut = () if op.cache is None else segments[op.cache]
    track = None if op.features is None else plan.state(op.features)
    own = isinstance(track, TrackState) and track.model == op.model
    keeps: tuple[tuple[str, tuple[int, ...]], ...] = ()
    if op.keep is not None:
        recorded = plan.state(op.keep)
        assert isinstance(recorded, TrackState)
        keeps = ((recorded.name, recorded_layers(recorded)),)
    return PassSpec(
        model=op.model,
        cache=op.cache,
        spans=spans,
        segments=tuple(
            part for part in cut if any(a <= part[0] and part[1] <= b for a, b in spans)
            and part[0] < part[1]
        ),
        pending=op.pending,
        most=op.most,
        features=op.features,
        shift=op.shift,
        own=own,
        inside=own and op.shift == 0 and bool(op.layers),
        keeps=keeps,
        gives=("logits",) if op.gives is None else op.gives,
        levels=op.levels,
        tells_ahead=op.tells_ahead(plan),
        skips=Skips.read(op.skip) if op.skip else NO_SKIPS,
        block=op.attend == "block",
        scratch=op.write == "scratch",
        keys_only=op.only is not None,
        policy=op.policy,
    )  # fmt: skip


def recorded_layers(track: TrackState) -> tuple[int, ...]:
    """After how many layers each part of a track is recorded; -1 for after all that run."""
    if isinstance(track.layer, str):
        return (-1,)
    return track.layer if isinstance(track.layer, tuple) else (track.layer,)


def whole_stack(
    plan: Plan, cache: CacheState, layers: int, segments: Mapping[str, tuple[Layers, ...]]
) -> PassSpec:
    """How text runs through all layers of a model, for its cache and its tracks alone."""
    parts = [spec_of(plan, op, layers, segments) for op in readings(plan, cache)]
    return replace(parts[0], keeps=tuple(keep for part in parts for keep in part.keeps), gives=())


def living_caches(plan: Plan) -> set[str]:
    """Caches whose nodes may stay behind the text after a round (`commit alive=`)."""
    commits = (op for op in walk_plan(plan) if isinstance(op, Commit))
    return {str(op.state) for op in commits if op.alive is not None}


def plain_caches(plan: Plan) -> dict[str, bool]:
    """Caches whose passes all run one span of layers in one way, and whether that is scratch."""
    plain: dict[str, bool] = {}
    ops = [*walk_plan(plan)]
    living = living_caches(plan)
    for state in plan.states:
        if isinstance(state, CacheState) and state.name not in living:
            passes = [op for op in ops if isinstance(op, Forward) and op.cache == state.name]
            ways = {(op.layers, op.write, op.attend) for op in passes}
            first = passes[0] if len(ways) == 1 else None
            if first is not None and first.attend == "ancestors" and len(first.layers) < 2:
                plain[str(state.name)] = first.write == "scratch"
    return plain


def turning_caches(plan: Plan) -> dict[str, bool]:
    """Caches that scratch writes after passes for good in some round.

    Each with whether such passes may come again before what scratch wrote is forgotten.
    """
    turning, again = set[str](), living_caches(plan)
    for item in plan.rounds:
        good, scratched = set[str](), set[str]()
        for step in infer_round(plan, item).steps:
            if not isinstance(step.op, Forward) or step.op.cache is None:
                continue
            name = str(step.op.cache)
            if step.op.write == "exact":
                good.add(name)
                again |= {name} & scratched
            else:
                scratched.add(name)
                turning |= {name} & good
    return {name: name in again for name in turning}
