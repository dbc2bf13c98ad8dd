"""Rules about rounds: what is drawn, emitted and stored, that text grows, and lanes."""

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
    """No number of a stream is read twice in a round, and none is used twice but by races."""
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
                    yield op, "numbers keyed by position begin at the root's own, outside of loops"
        elif isinstance(op, Measure) and isinstance(op.operand, Value):
            held = step.reads.get(op.operand)
            if isinstance(held, UniformsType):  # what is told of them must not meet what they draw
                if id(held) in used and id(held) not in measured:
                    yield op, f"the numbers %{op.operand} are used twice"
                used[id(held)] = False
                measured.add(id(held))
        elif isinstance(op, Grow | Accept) and op.by is not None:
            given = id(step.reads[op.by])  # each uniform op gives an object of its own
            races = _races(op, tables)
            if given in used and not (races and used[given]):
                yield op, f"the numbers %{op.by} are used twice"
            used[given] = races and used.get(given, True)
            if not races and (given in by_position or (read_again and isinstance(op, Accept))):
                yield op, "later rounds read numbers keyed by position again; only races may"
    for (stream, _), taken in spans.items():
        taken.sort(key=lambda span: span[:2])
        for (_, stop, _), (start, _, op) in pairwise(taken):
            if start < stop:
                yield op, f"number {start} of stream {stream} is read twice"


def _races(op: Grow | Accept, tables: Tables) -> bool:
    """Whether the op draws by races that others may run too, one number per depth."""
    if isinstance(op, Grow):
        return op.how == "shared"
    if op.at is not None:  # its numbers are counted from that node
        return False
    rule = tables.find("rule", op.rule.name)
    return rule is not None and rule.shares_uniforms


def emits(types: RoundTypes) -> Iterator[Finding]:
    """A round emits one whole path, outside of loops; only what is emitted is committed."""
    emitted = 0
    for step in types.steps:
        op = step.op
        path = step.reads[op.path] if isinstance(op, Commit | Emit) else None
        if not isinstance(path, PathType):
            continue
        if isinstance(op, Commit):
            if not path.emitted:
                yield op, f"%{op.path} was not emitted; only emit writes the text"
            continue
        emitted += 1
        if emitted == 2:
            yield op, "emits a second time for the same requests"
        if step.trips > 1:
            yield op, "emits inside a loop"
        if not path.whole:
            yield op, "the path was judged below a node, not from the root; adopt it first"
    if not emitted:
        yield None, "the round never emits"


def progress(types: RoundTypes) -> Iterator[Finding]:
    """What is emitted holds a token: the root has a row, or nodes are accepted without rows."""
    judged = {step.op.results: step for step in types.steps if isinstance(step.op, Accept)}
    for step in types.steps:
        accept = judged.get((step.op.path,)) if isinstance(step.op, Emit) else None
        if accept is None or not isinstance(accept.op, Accept):
            continue
        tree = accept.reads[accept.op.tree]
        rows = None if accept.op.target is None else accept.reads[accept.op.target]
        if isinstance(rows, LogitsType) and not rows.root:
            may = "has" if rows.indices is not None else "may have"
            yield (
                accept.op,
                f"%{accept.op.target} {may} no row for the root: nothing is ever emitted",
            )
        if rows is None and isinstance(tree, TreeType) and tree.nodes == 0:
            yield accept.op, "an empty tree judged without rows emits nothing"


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
                        yield op, f"@{state} is written by lanes {theirs} and {lane}"
                mine[op] = lane


def _overlap(state: State, first: Op, second: Op) -> bool:
    forwards = isinstance(first, Forward) and isinstance(second, Forward)
    if not forwards or not isinstance(first, Forward) or not isinstance(second, Forward):
        return True
    if first.cache != state or second.cache != state or not first.layers or not second.layers:
        return True
    return any(a.start < b.stop and b.start < a.stop for a in first.layers for b in second.layers)
