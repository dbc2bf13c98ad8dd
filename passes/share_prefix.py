"""What drafting left in the lower layers serves the verification, which runs the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from specplan.ir.ops import Commit, Forward, Op, Pick, Repeat, Segment, When
from specplan.ir.plan import Plan, Round, TrackState, walk
from specplan.ir.types.infer import Step, infer_round
from specplan.ir.types.residency import CacheRuns
from specplan.ir.types.value_types import ROOT, TreeType
from specplan.ir.values import Span, State, Value
from specplan.passes.values import FreshNames, with_body


def share_prefix(plan: Plan) -> Plan:
    """`forward` of layers 0:S after drafts by 0:E -> 0:E for nodes that lack it, E:S for all.

    The hidden states that leave the lower layers are kept in a track, which is committed beside the
    cache, and enter the upper layers. Drafts and verification are passes over one cache; the
    verification names its layers, since a plan does not know how high a stack is otherwise.
    """
    for item in plan.rounds:
        sharing = _sharing(plan, item)
        if sharing is not None:
            plan = sharing.applied(plan, item)
    return plan


@dataclasses.dataclass(frozen=True)
class _Sharing:
    """A verification whose lower layers need not run again.

    Attributes:
        whole: the forward of all layers.
        lower: the layers that drafts have run.
        tree: its nodes are verified.
        missing: those that the lower layers have not run.
        newest: these are the ones that were added last.
        track_name: where the drafts keep their hidden states already, if they do.
    """

    whole: Forward
    lower: Span
    tree: Value
    missing: tuple[int, ...]
    newest: bool
    track_name: State | None

    def applied(self, plan: Plan, item: Round) -> Plan:
        """The plan with the round changed, and its track."""
        track = self.track_name or _track(plan, item, self.whole.model, self.lower.stop)
        if plan.state(track) is None:
            declared = TrackState(name=track, model=self.whole.model, layer=self.lower.stop)
            plan = dataclasses.replace(plan, states=(*plan.states, declared))
        ops = tuple(self._ops(item.ops, track, FreshNames(item)))
        changed = dataclasses.replace(item, ops=ops)
        rounds = tuple(changed if other is item else other for other in plan.rounds)
        return dataclasses.replace(plan, rounds=rounds)

    def _ops(self, ops: Iterable[Op], track: State, fresh: FreshNames) -> Iterator[Op]:
        for op in ops:
            if op == self.whole:
                yield from self._parts(track, fresh)
            elif isinstance(op, Forward) and op.cache == self.whole.cache:
                yield dataclasses.replace(op, keep=track)
            elif (
                isinstance(op, Commit) and op.state == self.whole.cache and self.track_name is None
            ):
                yield op
                yield dataclasses.replace(op, state=track)
            elif isinstance(op, Repeat | When | Segment):
                yield with_body(op, self._ops(op.body.ops, track, fresh))
            else:
                yield op

    def _parts(self, track: State, fresh: FreshNames) -> Iterator[Op]:
        """The lower layers for nodes that lack them, then the upper ones for all."""
        (span,) = self.whole.layers
        if self.missing:
            last = fresh.called("last" if self.newest else "missing")
            if self.newest:
                yield Pick(results=(last,), tree=self.tree, of="newest")
            else:
                yield Pick(results=(last,), tree=self.tree, of="all", nodes=self.missing)
            yield Forward(
                model=self.whole.model,
                nodes=(last,),
                cache=self.whole.cache,
                layers=(self.lower,),
                keep=track,
                gives=(),
            )
        upper = (Span(self.lower.stop, span.stop),)
        yield dataclasses.replace(self.whole, layers=upper, features=track)


def _sharing(plan: Plan, item: Round) -> _Sharing | None:
    """What a round runs twice, or None."""
    for whole in item.ops:
        if not isinstance(whole, Forward) or whole.cache is None or not _from_below(plan, whole):
            continue
        drafts = _drafts(plan, item, whole)
        if drafts:
            sharing = _shared(plan, item, whole, drafts)
            if sharing is not None:
                return sharing
    return None


def _from_below(plan: Plan, op: Forward) -> bool:
    """Whether a forward leaves in the first layers of a cache what the model's own stack would."""
    named = len(op.layers) == 1 and op.layers[0].start == 0 < op.layers[0].stop
    own = op.features is None and not op.alters_stack(plan) and not op.is_reduced(plan)
    return named and own and op.write == "exact" and isinstance(op.pending, int)


def _drafts(plan: Plan, item: Round, whole: Forward) -> list[Forward]:
    """The other forwards on its cache, all of them by the same lower layers; empty if they differ.

    A loop or region that some requests leave early lets data decide what was run.
    """
    always = list(_always(item.ops))
    others = [
        op
        for op in walk(item.ops)
        if isinstance(op, Forward) and op.cache == whole.cache and op is not whole
    ]
    (span,) = whole.layers
    for op in others:
        if op not in always or not _from_below(plan, op) or op.layers[0].stop >= span.stop:
            return []
    alike = {(op.layers, op.keep) for op in others}
    return others if len(alike) == 1 and others[0].pending == whole.pending else []


def _always(ops: Iterable[Op]) -> Iterator[Op]:
    """Ops that run for every request."""
    for op in ops:
        if isinstance(op, Segment) or (isinstance(op, Repeat) and op.body.until is None):
            yield from _always(op.body.ops)
        elif not isinstance(op, Repeat | When):
            yield op


def _shared(plan: Plan, item: Round, whole: Forward, drafts: list[Forward]) -> _Sharing | None:
    lower, track_name = drafts[0].layers[0], drafts[0].keep
    declared = None if track_name is None else plan.state(track_name)
    if track_name is not None and not (
        isinstance(declared, TrackState) and declared.layer == lower.stop
    ):
        return None
    commits = [op for op in walk(item.ops) if isinstance(op, Commit) and op.state == whole.cache]
    if any(op.alive is not None for op in commits):
        return None
    steps = infer_round(plan, item).steps
    place = next(index for index, step in enumerate(steps) if step.op is whole)
    if any(_on(step, whole.cache) for step in steps[place + 1 :]) or len(whole.nodes) != 1:
        return None
    runs = CacheRuns()
    for step in steps[:place]:
        if isinstance(step.op, Forward) and _on(step, whole.cache):
            runs.add(step, step.op)
    (tree,) = whole.nodes
    verified = steps[place].reads[tree]
    if not isinstance(verified, TreeType) or verified.lineage is None:
        return None
    present = runs.present(verified.lineage, (lower,), exact=True)
    if present is None or runs.serves_other_trees(verified.lineage) or not runs.caught_up((lower,)):
        return None
    missing = tuple(sorted(set(range(verified.nodes)) - present - {ROOT}))
    return _Sharing(whole, lower, tree, missing, verified.newest == missing, track_name)


def _on(step: Step, cache: State | None) -> bool:
    return isinstance(step.op, Forward) and step.op.cache == cache


def _track(plan: Plan, item: Round, model: str, layer: int) -> State:
    """A track of the states after a layer: one that this round has no use for yet, or a new one."""
    used = {op.keep or op.features for op in walk(item.ops) if isinstance(op, Forward)}
    for state in plan.states:
        alike = isinstance(state, TrackState) and (state.model, state.layer) == (model, layer)
        if alike and state.name not in used:
            return state.name
    name, number = f"after_{layer}", 0
    while plan.state(State(name)) is not None:
        number += 1
        name = f"after_{layer}_{number}"
    return State(name)
