"""Rules about parts of a stack: layers that one round leaves out and another reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from specplan.ir.op import Op
from specplan.ir.ops import Forward, Measure, Repeat, When
from specplan.ir.plan import Plan, Round, TrackState, walk
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.residency import operands_of, stack_ends
from specplan.ir.types.scope import operands
from specplan.ir.types.value_types import ROOT
from specplan.ir.values import State, Value

Finding = tuple[Op | None, str]
Branches = tuple[int, ...]
"""The ops around an op whose bodies may be left out, the outermost first, by identity."""
EXACT = ("target", "stated")
"""Promises that need exact rows of whole models in every round."""


def holes(plan: Plan, item: Round) -> Iterator[Finding]:
    """All layers that a pass reads hold the text, whichever round decoded it.

    A pass catches up text that its first or last layer lacks. It starts from tokens or, in the
    middle of the stack, from the hidden states of a track.
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
            what = f"round {other.name} does not run layer {lacking[0]} on @{op.cache}"
            if {min(wanted), max(wanted)} <= filled:
                yield (
                    op,
                    f"{what}, and no pass fills a gap between layers",
                )
            elif op.continues_stack(plan) and all(one.keep != op.features for one in ran):
                yield op, f"{what}; let it keep=@{op.features}, from which this pass can catch up"


def tracks(plan: Plan, item: Round, types: RoundTypes) -> Iterator[Finding]:
    """A track from which a model's own stack continues holds the root's state when it is read.

    A forward with `write=exact` reads what was kept by such a forward. Where this round keeps the
    state under a flag only, every pass of other rounds through that layer must keep it, and the
    flag must ask for the lag of the cache.
    """
    keepers_of: defaultdict[State, list[tuple[Forward, Branches]]] = defaultdict(list)
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
            keepers = [branch for keeper, branch in keepers_of[track.name] if keeper.write in ways]
            if not keepers:
                yield (
                    op,
                    f"no earlier forward keeps the root's state in @{track.name}; give one keep=",
                )
            elif all(keeper != inside[: len(keeper)] for keeper in keepers):
                yield from ((op, what) for what in _unkept(plan, track))
                if not any(_asks_lag(item, set(keeper) - set(inside)) for keeper in keepers):
                    what = (
                        f"@{track.name} lacks the root's state where the flag around keep= is false"
                    )
                    yield op, f"{what}; compute the flag from `measure ... lag(layers=)`"
        if roots and op.keep is not None:
            keepers_of[op.keep].append((op, inside))


def _unkept(plan: Plan, track: TrackState) -> Iterator[str]:
    """The first pass of any round that may run the root and keep no state of it in a track."""
    for other in plan.rounds:
        for op in walk(other.ops):
            if _writes(op, track.model) and op.keep != track.name and _passes(op, track):
                yield f"round {other.name} runs layer {track.layer} without keep=@{track.name}"
                return


def _asks_lag(item: Round, branches: set[int]) -> bool:
    """Whether all flags of some branches depend on how much text a cache lacks."""
    made = {name: op for op in walk(item.ops) for name in op.results}

    def reads_lag(name: Value | None) -> bool:
        op = None if name is None else made.get(name)
        if isinstance(op, Measure):
            return op.kind.name == "lag"
        return op is not None and any(map(reads_lag, operands(op)))

    flags = [_flag(op) for op in walk(item.ops) if id(op) in branches]
    return all(map(reads_lag, flags))


def _flag(op: Op) -> Value | None:
    """The flag without which requests skip the body of an op; None where none skips it."""
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
    """Whether an op runs a model with `write=exact`."""
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
