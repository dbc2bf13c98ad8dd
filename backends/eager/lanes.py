"""Segments: their ops, one after another, and lanes that run at once in threads of their own.

Torch lets go of the interpreter's lock in its kernels, so that passes of two models overlap where
there are cores for both. Lanes get the same inputs and the same numbers either way, and each runs
its own ops in order, so that what they give does not depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from copy import copy
from functools import cache
from typing import TYPE_CHECKING

import torch

from specplan.backends.eager.op_runner import Scope
from specplan.ir.ops import Forward, Graft, Grow, Op, Pick, Prune, Repeat, Segment, Uniform
from specplan.ir.plan import Plan, walk
from specplan.ir.types.lifetimes import read_by
from specplan.runtime.models.modules import Module

if TYPE_CHECKING:
    from specplan.backends.eager.interpreter import Interpreter

_WITHOUT_STATE = (Forward, Graft, Grow, Pick, Prune, Repeat, Uniform)
"""Ops that touch nothing of a session but the caches of their models."""


def lanes_of(plan: Plan, models: Mapping[str, Module]) -> dict[int, tuple[Segment, ...]]:
    """Segments that may run at once, at least two, by the identity of the first of them.

    They stand one after another, none reads what another gives, no two run the same model, and
    their ops touch nothing else that others might.
    """
    lanes: dict[int, tuple[Segment, ...]] = {}
    for item in plan.rounds:
        for ops in _regions(item.ops):
            for group in _groups(ops, models):
                lanes[id(group[0])] = group
    return lanes


def room_for(lanes: int, device: torch.device) -> bool:
    """Whether a processor has cores for so many lanes, each with torch's threads."""
    if device.type != "cpu":
        return False
    mine = getattr(os, "sched_getaffinity", None)
    cores = len(mine(0)) if mine is not None else os.cpu_count() or 1
    return lanes * torch.get_num_threads() <= cores


def segment(session: Interpreter, op: Segment, scope: Scope) -> None:
    """Run a segment, and the lanes beside it where they run at once."""
    if id(op) in session.ahead:
        session.ahead.remove(id(op))
        return
    group = session.lanes.get(id(op), ())
    if not group or session.observer is not None or not _at_once(session, len(group)):
        scope.update(_run(session, op, dict(scope)))
        return
    for one, given in zip(group, _together(session, group, scope), strict=True):
        session.ahead.add(id(one))
        scope.update(given)
    session.ahead.remove(id(op))


def _at_once(session: Interpreter, lanes: int) -> bool:
    if session.side_by_side is not None:
        return session.side_by_side
    return room_for(lanes, session.batch.device)


def _together(session: Interpreter, group: Sequence[Segment], scope: Scope) -> list[Scope]:
    """What lanes give: all but the first run in threads, the first in this one."""
    own, *others = [(copy(session), op, dict(scope)) for op in group]
    running = [_pool(len(others)).submit(_run, *lane) for lane in others]
    try:
        first = _run(*own)
    finally:
        wait(running)
    return [first, *(lane.result() for lane in running)]


@torch.inference_mode()
def _run(session: Interpreter, op: Segment, inner: Scope) -> Scope:
    return session.region(op, inner)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lane")


def _regions(ops: tuple[Op, ...]) -> Iterator[tuple[Op, ...]]:
    """These ops, and those of all regions in them but those of lanes."""
    yield ops
    for op in ops:
        body = op.body
        if body is not None and not (isinstance(op, Segment) and op.lane):
            yield from _regions(body.ops)


def _groups(ops: tuple[Op, ...], models: Mapping[str, Module]) -> Iterator[tuple[Segment, ...]]:
    group: list[Segment] = []
    for op in (*ops, None):
        if isinstance(op, Segment) and _fits(op, group, models):
            group.append(op)
            continue
        if len(group) > 1:
            yield tuple(group)
        group = [op] if isinstance(op, Segment) and _fits(op, [], models) else []


def _fits(op: Segment, group: Sequence[Segment], models: Mapping[str, Module]) -> bool:
    """Whether a segment may run beside those of a group."""
    if op.lane is None or op.lane in {one.lane for one in group}:
        return False
    if not all(
        isinstance(inner, _WITHOUT_STATE) and _is_alone(inner) for inner in walk(op.body.ops)
    ):
        return False
    given = {name for one in group for name in one.results}
    theirs = {id(model) for one in group for model in _run_by(one, models)}
    return not given & read_by((op,)) and theirs.isdisjoint(map(id, _run_by(op, models)))


def _is_alone(op: Op) -> bool:
    """Whether an op neither reads nor writes hidden states, nor tells a session of its trips."""
    if isinstance(op, Forward):
        return op.features is None and op.keep is None
    return not (isinstance(op, Repeat) and op.body.until is not None)


def _run_by(op: Segment, models: Mapping[str, Module]) -> list[Module]:
    forwards = (inner for inner in walk(op.body.ops) if isinstance(inner, Forward))
    return [models[forward.model] for forward in forwards]
