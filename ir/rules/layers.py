"""Rules about parts of a stack: what one round leaves out, others make up for or do not need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from specplan.ir.op import Op
from specplan.ir.ops import Forward, Measure, Repeat, When
from specplan.ir.ops.forward import stack_ends
from specplan.ir.plan import Plan, Round, TrackState, walk
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.residency import operands_of
from specplan.ir.types.scope import operands
from specplan.ir.types.value_types import ROOT
from specplan.ir.values import State, Value

Finding = tuple[Op | None, str]
Branches = tuple[int, ...]
"""The ops around an op whose bodies may be left out, the outermost first, by identity."""
EXACT = ("target", "stated")
"""Promises that need exact rows of whole models in every round."""


def holes(plan: Plan, item: Round) -> Iterator[Finding]:
    """Text is in all layers that a pass reads, whichever round decoded it.

    A pass reads text that its first or last layer lacks. It begins with tokens or, in the middle
    of the stack, with the states of a track.
    """
    if plan.assumptions.law.name not in EXACT:
        return
    ends = stack_ends(plan, item)
    for op in walk(item.ops):
        if not isinstance(op, Forward) or op.cache is None or op.is_reduced(plan):
            continue
        wanted = _layers(op, ends)
        for other in plan.rounds:
            always = (one for one, inside in placed(other.ops) if not inside)
            ran = [one for one in always if _writes(one, op.model)]
            filled = {layer for one in ran if one.cache == op.cache for layer in _layers(one, ends)}
            lacking = sorted(wanted - filled)
            if not lacking:
                continue
            what = f"round {other.name} leaves layer {lacking[0]} out of @{op.cache}"
            if {min(wanted), max(wanted)} <= filled:
                yield op, f"{what}, below layers that it runs"
            elif op.continues_stack(plan) and all(one.keep != op.features for one in ran):
                yield op, f"{what} and keeps no @{op.features} to make up for it"


def tracks(plan: Plan, item: Round, types: RoundTypes) -> Iterator[Finding]:
    """A track that goes on in its own stack holds the root's state.

    A pass for good reads what was kept for good. A round that may not keep it counts on the others:
    each of their passes through its layer does, and where text lacks it this round keeps it.
    """
    kept: defaultdict[State, list[tuple[Forward, Branches]]] = defaultdict(list)
    places = {id(op): inside for op, inside in placed(item.ops)}
    for step in types.steps:
        op = step.op
        if not isinstance(op, Forward):
            continue
        roots = any(nodes is None or ROOT in nodes for _, nodes in operands_of(step, op))
        track = None if op.features is None else plan.state(op.features)
        inside = places[id(op)]
        if roots and isinstance(track, TrackState) and _goes_on(op, track):
            ways = ("exact", op.write)
            keepers = [branch for keeper, branch in kept[track.name] if keeper.write in ways]
            if not keepers:
                yield op, f"no forward before it keeps the root's state in @{track.name}"
            elif all(keeper != inside[: len(keeper)] for keeper in keepers):
                yield from ((op, what) for what in _unkept(plan, track))
                if not any(_asks_lag(item, set(keeper) - set(inside)) for keeper in keepers):
                    what = f"@{track.name} is kept under a flag that asks for no lag"
                    yield op, f"{what}: where it does not hold, the root has no state there"
        if roots and op.keep is not None:
            kept[op.keep].append((op, inside))


def _unkept(plan: Plan, track: TrackState) -> Iterator[str]:
    """Passes that may have run the root without its state for a track."""
    for other in plan.rounds:
        for op in walk(other.ops):
            if _writes(op, track.model) and op.keep != track.name and _passes(op, track):
                yield f"round {other.name} runs layer {track.layer} and keeps no @{track.name}"
                return


def _asks_lag(item: Round, branches: set[int]) -> bool:
    """Whether all flags of some branches are told how much text a cache lacks."""
    made = {name: op for op in walk(item.ops) for name in op.results}

    def told(name: Value | None) -> bool:
        op = None if name is None else made.get(name)
        if isinstance(op, Measure):
            return op.kind.name == "lag"
        return op is not None and any(map(told, operands(op)))

    flags = [_flag(op) for op in walk(item.ops) if id(op) in branches]
    return all(map(told, flags))


def _flag(op: Op) -> Value | None:
    """What says whether the body of an op is left out; None where it never is."""
    if isinstance(op, When):
        return op.flag
    return op.only if isinstance(op, Repeat) else None


def _goes_on(op: Forward, track: TrackState) -> bool:
    return track.model == op.model and op.shift == 0 and isinstance(track.layer, int)


def _passes(op: Forward, track: TrackState) -> bool:
    """Whether a pass computes what a track holds."""
    assert isinstance(track.layer, int)
    return not op.layers or any(span.start < track.layer <= span.stop for span in op.layers)


def _writes(op: Op, model: str) -> TypeGuard[Forward]:
    """Whether an op runs a model for good."""
    good = isinstance(op, Forward) and op.cache is not None and op.write == "exact"
    return good and op.runs == model


def _layers(op: Forward, ends: dict[str, int]) -> set[int]:
    """Layers that a pass runs; of a model whose layers no forward names, one stands for all."""
    if not op.layers:
        return {*range(max(ends[op.model], 1))}
    return {layer for span in op.layers for layer in range(span.start, span.stop)}


def placed(ops: Iterable[Op], inside: Branches = ()) -> Iterator[tuple[Op, Branches]]:
    """Ops, and the branches that each stands in."""
    for op in ops:
        yield op, inside
        if op.body is not None:
            branch = () if _flag(op) is None else (id(op),)
            yield from placed(op.body.ops, inside + branch)
