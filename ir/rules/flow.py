"""Rules about a round: random numbers, emission, progress of the text, and lanes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from specplan.ir.ops import (
    Accept,
    Commit,
    Emit,
    Forward,
    Grow,
    Measure,
    Op,
    Uniform,
)
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import LogitsType, PathType, TreeType, UniformsType
from specplan.ir.values import State, Value

Finding = tuple[Op | None, str]


def streams(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """No number of a stream is read twice in a round; only races use a number twice."""
    spans: dict[tuple[str, str], list[tuple[int, int, Op]]] = {}
    used: dict[int, bool] = {}
    by_position: set[int] = set()
    measured: set[int] = set()
    read_again = any(isinstance(op, Uniform) and op.key == "position" for op in walk_plan(plan))
    for step in types.steps:
        op = step.op
        if isinstance(op, Uniform):
            start = op.offset + step.trip * op.count
            spans.setdefault((op.stream, op.key), []).append((start, start + op.count, op))
            if op.key == "position":
                by_position.add(id(step.gives[0]))
                if start:
                    yield op, "key=position needs offset=0 and a place outside of loops"
        elif isinstance(op, Measure) and isinstance(op.operand, Value):
            numbers = step.reads.get(op.operand)
            if isinstance(numbers, UniformsType):  # a measured number must not draw as well
                if id(numbers) in used and id(numbers) not in measured:
                    yield op, _TWICE.format(op.operand)
                used[id(numbers)] = False
                measured.add(id(numbers))
        elif isinstance(op, Grow | Accept) and op.by is not None:
            given = id(step.reads[op.by])  # each uniform op gives an object of its own
            races = _races(op, tables)
            if given in used and not (races and used[given]):
                yield op, _TWICE.format(op.by)
            used[given] = races and used.get(given, True)
            if not races and (given in by_position or (read_again and isinstance(op, Accept))):
                yield (
                    op,
                    "a later round reads the same numbers again (key=position); only races, "
                    "how=shared and how=minhash and their rules, may use them",
                )
    for (stream, _), taken in spans.items():
        taken.sort(key=lambda span: span[:2])
        for (_, stop, _), (start, _, op) in pairwise(taken):
            if start < stop:
                yield (
                    op,
                    f"number {start} of stream {stream} is read twice; give another offset=",
                )


_TWICE = "the uniforms %{} are used twice; draw others by a second uniform op"


def _races(op: Grow | Accept, tables: Tables) -> bool:
    """Whether the op draws by exponential races, which may share one number per depth."""
    if isinstance(op, Grow):
        return op.races
    if op.at is not None:  # its numbers count from that node, not by depth
        return False
    rule = tables.find("rule", op.rule.name)
    return rule is not None and rule.shares_uniforms


def emits(types: RoundTypes) -> Iterator[Finding]:
    """A round emits one path, judged from the root, outside of loops; only that is committed."""
    emitted = 0
    for step in types.steps:
        op = step.op
        path = step.reads[op.path] if isinstance(op, Commit | Emit) else None
        if not isinstance(path, PathType):
            continue
        if isinstance(op, Commit):
            if not path.emitted:
                yield op, f"%{op.path} was not emitted; commit the path that emit gives"
            continue
        emitted += 1
        if emitted == 2:
            yield op, "the round emits twice; a round emits one path"
        if step.trips > 1:
            yield op, "emit stands inside a loop; emit once, after the loop"
        if not path.whole:
            yield (
                op,
                "the path was judged below a node, not from the root; adopt it and judge the tree",
            )
    if not emitted:
        yield None, "the round never emits a path"


def progress(types: RoundTypes) -> Iterator[Finding]:
    """Every round can emit a token: the root has logits, or nodes are accepted without any."""
    judged = {step.op.results: step for step in types.steps if isinstance(step.op, Accept)}
    for step in types.steps:
        accept = judged.get((step.op.path,)) if isinstance(step.op, Emit) else None
        if accept is None or not isinstance(accept.op, Accept):
            continue
        tree = accept.reads[accept.op.tree]
        logits = None if accept.op.target is None else accept.reads[accept.op.target]
        if isinstance(logits, LogitsType) and not logits.root:
            may = "has" if logits.indices is not None else "may have"
            yield (
                accept.op,
                f"%{accept.op.target} {may} no logits for the root, so a round may emit nothing; "
                "run the forward on the root, too",
            )
        if logits is None and isinstance(tree, TreeType) and tree.nodes == 0:
            yield accept.op, "an empty tree without target= has no token to emit; give target="


def lanes(types: RoundTypes) -> Iterator[Finding]:
    """Two lanes do not write the same state, or the same layers of a cache."""
    writers: dict[State, dict[Op, str]] = {}
    for step in types.steps:
        op, lane = step.op, step.lane
        if lane is None:
            continue
        for state in (getattr(op, field) for field in op.writes):
            if state is None:
                continue
            mine = writers.setdefault(state, {})
            if op not in mine:
                for other, theirs in mine.items():
                    if theirs != lane and _overlap(state, op, other):
                        yield (
                            op,
                            f"lanes {theirs} and {lane} both write @{state}; use one lane",
                        )
                mine[op] = lane


def _overlap(state: State, first: Op, second: Op) -> bool:
    if not isinstance(first, Forward) or not isinstance(second, Forward):
        return True
    if first.cache != state or second.cache != state or not first.layers or not second.layers:
        return True
    return any(a.start < b.stop and b.start < a.stop for a in first.layers for b in second.layers)
