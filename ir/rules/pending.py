"""`pending=` of forwards, filled in where a plan leaves it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specplan.ir.ops import Forward, Op
from specplan.ir.plan import Plan, Round
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
