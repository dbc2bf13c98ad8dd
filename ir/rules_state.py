"""Rules about names and states: what is declared, written, committed and shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from specplan.ir.infer import RoundTypes
from specplan.ir.ops import (
    Accept,
    Commit,
    Emit,
    Forward,
    Grow,
    Load,
    Lookup,
    Measure,
    Mix,
    Op,
    Refresh,
    Repeat,
    Root,
    Store,
    Uniform,
    Update,
)
from specplan.ir.plan import (
    CacheState,
    Plan,
    Round,
    SourceState,
    TrackState,
    ValueState,
    walk,
)
from specplan.ir.tables import Table, Tables
from specplan.ir.types import PathType
from specplan.ir.values import TEXT_STATE, Entry, State

Finding = tuple[Op | None, str]
_KINDS: dict[tuple[type[Op], str], tuple[type, ...]] = {
    (Forward, "cache"): (CacheState,),
    (Forward, "features"): (TrackState,),
    (Forward, "keep"): (TrackState,),
    (Lookup, "source"): (SourceState,),
    (Update, "source"): (SourceState,),
    (Load, "state"): (ValueState,),
    (Store, "state"): (ValueState,),
    (Commit, "state"): (CacheState, TrackState),
    (Refresh, "state"): (CacheState,),
    (Measure, "operand"): (CacheState,),
}


def ssa(item: Round) -> Iterator[Finding]:
    """Every name is defined once; regions do not shadow."""
    seen: Counter[str] = Counter()
    for op in walk(item.ops):
        parameters = tuple(p for p, _ in op.carried) if isinstance(op, Repeat) else ()
        for name in (*op.results, *parameters):
            seen[name] += 1
            if seen[name] == 2:
                yield op, f"%{name} is defined twice"


def declared(plan: Plan, item: Round) -> Iterator[Finding]:
    """Models, row groups and states are declared, states of the right kind."""
    models = {model.name for model in plan.models}
    groups = {group.name for group in plan.row_groups}
    for op in walk(item.ops):
        if isinstance(op, Forward) and op.model not in models:
            yield op, f"model {op.model} is not declared"
        if isinstance(op, Root) and op.rows is not None and op.rows not in groups:
            yield op, f"row group {op.rows} is not declared"
        for field in vars(op):
            name = getattr(op, field)
            if isinstance(name, State) and not (field == "source" and name == TEXT_STATE):
                found = plan.state(name)
                wanted = _KINDS.get((type(op), field), ())
                if found is None:
                    yield op, f"@{name} is not declared"
                elif not isinstance(found, wanted):
                    yield op, f"@{name} is a {found.keyword}"
        if isinstance(op, Forward) and op.cache is not None:
            cache = plan.state(op.cache)
            if isinstance(cache, CacheState) and cache.model != op.model:
                yield op, f"@{op.cache} is a cache of {cache.model}, not of {op.model}"


def entries(plan: Plan, item: Round, tables: Tables) -> Iterator[Finding]:
    """Entries of open tables exist and take the parameters given."""
    for op in walk(item.ops):
        pairs: list[tuple[Table, Entry]] = []
        match op:
            case Accept():
                pairs = [("rule", op.rule), ("law", op.law)]
            case Grow() | Mix():
                pairs = [("law", op.law)]
            case Measure():
                pairs = [("measure", op.kind)]
        for table, entry in pairs:
            for what in tables.problems(table, entry):
                yield op, what


def streams(types: RoundTypes) -> Iterator[Finding]:
    """No two draws of a round read the same number of a stream."""
    taken: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for step in types.steps:
        op = step.op
        if not isinstance(op, Uniform):
            continue
        start = op.offset + step.trip * op.count
        stop = start + op.count
        mine = taken.setdefault((op.stream, op.key), [])
        if any(start < other_stop and other < stop for other, other_stop in mine):
            yield op, f"numbers {start} to {stop - 1} of stream {op.stream} are read twice"
        mine.append((start, stop))


def written(plan: Plan, item: Round) -> Iterator[Finding]:
    """States that a forward writes for good are committed in the same round."""
    committed = {op.state for op in walk(item.ops) if isinstance(op, Commit)}
    for op in walk(item.ops):
        if not isinstance(op, Forward) or op.write == "scratch":
            continue
        for state in (op.cache, op.keep):
            if state is not None and state not in committed:
                yield op, f"@{state} is written and never committed"


def committed_paths(types: RoundTypes) -> Iterator[Finding]:
    """Only an emitted path is committed; a row group emits once."""
    emitted: Counter[str | None] = Counter()
    for step in types.steps:
        op = step.op
        if isinstance(op, Commit):
            path = step.reads[op.path]
            if not (isinstance(path, PathType) and path.emitted):
                yield op, f"%{op.path} was not emitted; only emit writes the text"
        if isinstance(op, Emit):
            path = step.reads[op.path]
            group = path.rows if isinstance(path, PathType) else None
            emitted[group] += 1
            if emitted[group] == 2:
                yield op, "emits a second time for the same requests"
            if step.trips > 1:
                yield op, "emits inside a loop"
    if not emitted:
        yield None, "the round never emits"


def views(plan: Plan, item: Round) -> Iterator[Finding]:
    """A view of another cache is written as scratch only."""
    for op in walk(item.ops):
        if not isinstance(op, Forward) or op.cache is None or op.write == "scratch":
            continue
        cache = plan.state(op.cache)
        if isinstance(cache, CacheState) and cache.view is not None:
            yield op, f"@{cache.name} is a view: it takes write=scratch"


def resident(plan: Plan, types: RoundTypes) -> Iterator[Finding]:
    """The first forward on a cache in a round says how much text it may catch up."""
    caught: set[State] = set()
    for step in types.steps:
        op = step.op
        if not isinstance(op, Forward) or op.cache is None:
            continue
        pending = op.pending if isinstance(op.pending, tuple) else (op.pending,)
        if min(pending) < 0:
            yield op, "pending is negative"
        if max(pending) == 0 and op.cache not in caught:
            yield op, f"@{op.cache} trails the text and nothing catches it up; give pending="
        caught.add(op.cache)


def lanes(item: Round, types: RoundTypes) -> Iterator[Finding]:
    """Two lanes do not write the same layers of a cache."""
    seen: dict[State, list[tuple[str, Forward]]] = {}
    for step in types.steps:
        op = step.op
        if step.lane is None or not isinstance(op, Forward) or op.cache is None:
            continue
        for lane, other in seen.setdefault(op.cache, []):
            if lane != step.lane and _overlap(op, other):
                yield op, f"@{op.cache} is written by lanes {lane} and {step.lane}"
        seen[op.cache].append((step.lane, op))


def _overlap(first: Forward, second: Forward) -> bool:
    if not first.layers or not second.layers:
        return True
    return any(a.start < b.stop and b.start < a.stop for a in first.layers for b in second.layers)


def unused_states(plan: Plan) -> Iterator[Finding]:
    """A declared state belongs to a declared model, and views to declared caches."""
    models = {model.name for model in plan.models}
    for state in plan.states:
        if isinstance(state, CacheState | TrackState) and state.model not in models:
            yield None, f"@{state.name} belongs to model {state.model}, which is not declared"
        view = state.view if isinstance(state, CacheState) else None
        if view is not None and not isinstance(plan.state(view), CacheState):
            yield None, f"@{state.name} is a view of @{view}, which is no cache"
    names = Counter(state.name for state in plan.states)
    for name, count in names.items():
        if count > 1 or name == TEXT_STATE:
            yield None, f"@{name} is declared twice"
