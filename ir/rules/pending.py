"""`pending=` of forwards, filled in where a plan leaves it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from specplan.ir.ops import Forward, Op
from specplan.ir.plan import CacheState, Plan, Round, walk, walk_plan
from specplan.ir.rules.caches import left_behind
from specplan.ir.rules.layers import placed
from specplan.ir.types.infer import InferenceError, infer_round
from specplan.ir.types.residency import Layers, covers
from specplan.ir.values import State


def with_pending(plan: Plan) -> Plan:
    """The plan with `pending=` filled in, where static shapes determine it.

    They do where they bound the emitted tokens that a round leaves out of a cache.
    """
    return replace(plan, rounds=tuple(_filled(plan, item) for item in plan.rounds))


def with_replays(plan: Plan) -> Plan:
    """The plan with `rollback=replay` for `snapshot`, where one pass runs all drafted nodes.

    That pass then starts at the one state that is stored, and runs again what the round before
    accepted (The Mamba in the Llama, arXiv 2408.15237, section 4.2). The same object where no cache
    goes back by snapshots so, or nothing is drafted.
    """
    names = {
        state.name
        for state in plan.caches
        if state.rollback == "snapshot" and in_one_pass(plan, state.name)
    }
    states = tuple(
        replace(state, rollback="replay")
        if isinstance(state, CacheState) and state.name in names
        else state
        for state in plan.states
    )
    rounds = tuple(replace(item, ops=_reopened(item.ops, names)) for item in plan.rounds)
    replayed = with_pending(replace(plan, states=states, rounds=rounds))
    passes = [op for op in walk_plan(replayed) if isinstance(op, Forward) and op.cache in names]
    return replayed if any(op.pending > 1 for op in passes) else plan


def in_one_pass(plan: Plan, cache: State) -> bool:
    """Whether no round has more than one pass on a cache, nor one that is repeated."""
    for item in plan.rounds:
        passes = [op for op in walk(item.ops) if isinstance(op, Forward) and op.cache == cache]
        outside = [op for op in item.ops if isinstance(op, Forward) and op.cache == cache]
        if len(passes) > 1 or passes != outside:
            return False
    return True


def _reopened(ops: tuple[Op, ...], caches: Collection[State]) -> tuple[Op, ...]:
    """The same ops, with `pending=` left out on some caches."""
    return tuple(
        replace(op, pending=0) if isinstance(op, Forward) and op.cache in caches else op
        for op in ops
    )


def _filled(plan: Plan, item: Round) -> Round:
    without = {id(op) for op in _without(item)}
    if not without:
        return item
    try:
        types = infer_round(plan, item)
    except InferenceError:  # the verifier says what is wrong
        return item
    bounds = {
        id(passes[0]): bound
        for passes, bound in left_behind(plan, types)
        if bound is not None and id(passes[0]) in without
    }
    return replace(item, ops=_given(item.ops, bounds))


def _without(item: Round) -> Iterator[Forward]:
    """Forwards without `pending=` that are the first on their layers of a cache.

    Those under a flag are left out: how far their cache trails depends on data.
    """
    caught: defaultdict[State, list[Layers]] = defaultdict(list)
    for op, inside in placed(item.ops):
        if not isinstance(op, Forward) or op.cache is None:
            continue
        first = not any(covers(ran, op.layers) for ran in caught[op.cache])
        if first and op.pending == 0 and not inside:
            yield op
        caught[op.cache].append(op.layers)


def _given(ops: tuple[Op, ...], bounds: Mapping[int, int]) -> tuple[Op, ...]:
    """The same ops, some with another `pending=`."""
    return tuple(replace(op, **_changed(op, bounds)) for op in ops)


def _changed(op: Op, bounds: Mapping[int, int]) -> dict[str, Any]:
    if op.body is not None:
        return {"body": replace(op.body, ops=_given(op.body.ops, bounds))}
    return {"pending": bounds[id(op)]} if id(op) in bounds else {}
