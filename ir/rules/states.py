"""Rules about names and states: declarations, writes and commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from specplan.ir.errors import RuleError
from specplan.ir.ops import Commit, Forward, Op
from specplan.ir.plan import CacheState, Plan, Round, TrackState, ValueState, walk
from specplan.ir.rules.tables import state_entries
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.state_types import loaded_type
from specplan.ir.values import TEXT_STATE, State

Finding = tuple[Op | None, str]


def ssa(item: Round) -> Iterator[Finding]:
    """Every name is defined once; regions do not shadow."""
    seen: Counter[str] = Counter()
    for op in walk(item.ops):
        for name in (*op.results, *(parameter for parameter, _ in op.carried)):
            seen[name] += 1
            if seen[name] == 2:
                yield op, f"%{name} is defined twice"


def declared(plan: Plan, item: Round) -> Iterator[Finding]:
    """Models and states are declared, states of the right kind."""
    models = {model.name for model in plan.models}
    for op in walk(item.ops):
        if op.runs is not None and op.runs not in models:
            yield op, f"model {op.runs} is not declared; add a line: model {op.runs}"
        touched = dict(op.touches)
        for field, name in vars(op).items():
            wanted = touched.get(field, ())
            if isinstance(name, State) and not (name == TEXT_STATE and "text" in wanted):
                state = plan.state(name)
                if state is None:
                    yield op, f"@{name} is not declared; add a line: state @{name} = ..."
                elif state.keyword not in wanted:
                    yield (
                        op,
                        f"{field} takes a {' or '.join(wanted)}, and @{name} is a {state.keyword}",
                    )


def written(plan: Plan, item: Round) -> Iterator[Finding]:
    """States that a forward writes with `write=exact` are committed in the same round, once."""
    commits = Counter((op.state, op.path) for op in walk(item.ops) if isinstance(op, Commit))
    committed = {state for state, _ in commits}
    for op in walk(item.ops):
        if isinstance(op, Commit) and commits[op.state, op.path] > 1:
            yield op, f"@{op.state} is committed twice; leave one commit out"
        if not isinstance(op, Forward) or op.write == "scratch":
            continue
        for state in (op.cache, op.keep):
            if state is not None and state not in committed:
                yield (
                    op,
                    f"@{state} is never committed; add commit @{state} %path, or write=scratch",
                )


def states(plan: Plan, tables: Tables) -> Iterator[str]:
    """States are declared once, of declared models, with entries that exist."""
    models = {model.name for model in plan.models}
    for state in plan.states:
        if isinstance(state, CacheState | TrackState) and state.model not in models:
            yield f"@{state.name} belongs to model {state.model}, which is not declared"
        if isinstance(state, CacheState) and state.view is not None:
            viewed = plan.state(state.view)
            if not isinstance(viewed, CacheState) or viewed.view is not None:
                yield f"view= of @{state.name} takes a cache without view=, not @{state.view}"
            elif viewed.model != state.model:
                yield f"view= of @{state.name} must be of {state.model}, not of {viewed.model}"
        if isinstance(state, CacheState):
            yield from _read(plan, state)
        problems = list(state_entries(state, tables))
        if isinstance(state, CacheState) and not problems:
            yield from _retrieved(state, tables)
        yield from (f"@{state.name}: {what}" for what in problems)
        if isinstance(state, ValueState) and not problems:
            try:
                loaded_type(state, state.name)
            except RuleError as error:
                yield error.what
    names = Counter(state.name for state in plan.states)
    for name, count in names.items():
        if count > 1 or name == TEXT_STATE:
            yield f"@{name} is declared twice"


def _read(plan: Plan, state: CacheState) -> Iterator[str]:
    """`reads=` of a cache names a track, or a cache of another model."""
    if state.reads is None:
        return
    read = plan.state(state.reads)
    if not isinstance(read, CacheState | TrackState):
        yield f"reads= of @{state.name} takes a cache or a track, and @{state.reads} is neither"
    elif isinstance(read, CacheState) and read.model == state.model:
        yield f"reads= of @{state.name} takes a cache of another model; view= copies one"


def _retrieved(state: CacheState, tables: Tables) -> Iterator[str]:
    """What is chosen per head is of another cache; `retrieved` has room for two chunks of it."""
    if state.policy is None or not (state.retrieves or state.observes):
        return
    declared = tables.find("policy", state.policy.name)
    assert declared is not None
    arguments = declared.arguments(state.policy)
    if state.observes:
        if state.view is None:
            yield f"policy=observed of @{state.name} copies tokens of another cache; give view="
        if arguments["pool"] % 2 == 0:
            yield f"pool= of @{state.name} has a token in its middle; give an odd number"
        return
    least = 2 * int(arguments["chunk"])
    if state.view is None:
        yield f"policy=retrieved of @{state.name} copies chunks of another cache; give view="
    elif state.budget is not None and state.budget < least:
        yield f"@{state.name} needs room for two chunks; give budget={least} or a smaller chunk="
