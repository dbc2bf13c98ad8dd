"""Rules about entries of open tables, and about the tracks and sources a plan remembers with."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.infer import RoundTypes
from specplan.ir.infer_models import continues_stack
from specplan.ir.ops import Accept, Forward, Grow, Measure, Mix, Op, Update
from specplan.ir.plan import (
    CacheState,
    Plan,
    Round,
    SourceState,
    StateDeclaration,
    TrackState,
    ValueState,
    walk,
    walk_plan,
)
from specplan.ir.scope import WORDS
from specplan.ir.tables import Table, Tables
from specplan.ir.types import NodesType
from specplan.ir.values import Entry, Span, Value

Finding = tuple[Op | None, str]


def entries(item: Round, tables: Tables) -> Iterator[Finding]:
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


def state_entries(state: StateDeclaration, tables: Tables) -> Iterator[str]:
    """The same for the entry that a state is declared with."""
    match state:
        case SourceState():
            yield from tables.problems("source", state.kind)
        case ValueState():
            yield from tables.problems("value", state.kind)
        case CacheState() if state.policy is not None:
            yield from tables.problems("policy", state.policy)


def measured(types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A measure gets what it measures."""
    for step in types.steps:
        op = step.op
        declared = tables.find("measure", op.kind.name) if isinstance(op, Measure) else None
        if not isinstance(op, Measure) or declared is None or not declared.of:
            continue
        found = step.reads.get(op.operand) if isinstance(op.operand, Value) else None
        word = "a cache" if found is None else WORDS[type(found)]
        part = declared.of == "tree" and isinstance(found, NodesType)  # some of a tree's nodes
        if word.split()[-1] != declared.of and not part:
            yield op, f"{declared.name} measures {declared.of}, and {op.operand} is {word}"


def reproducible(plan: Plan, tables: Tables) -> Iterator[Finding]:
    """Draws of a reproducible plan do not depend on other requests or on changing weights."""
    if not plan.assumptions.reproducible:
        return
    rules = [tables.find("rule", op.rule.name) for op in walk_plan(plan) if isinstance(op, Accept)]
    if all(rule is None or rule.lossless == "greedy" for rule in rules):
        return
    for op in dict.fromkeys(op for op in walk_plan(plan) if isinstance(op, Update)):
        source = plan.state(op.source)
        if isinstance(source, SourceState) and source.scope == "process":
            yield op, f"@{source.name} learns from other requests; say assume reproducible=false"
    for model in plan.models:
        if model.revision == "live":
            yield None, f"model {model.name} changes; say assume reproducible=false"


def features(plan: Plan, types: RoundTypes) -> Iterator[Finding]:
    """Hidden states are recorded where they arise, and go in where the model expects them."""
    kept = {op.keep for op in walk_plan(plan) if isinstance(op, Forward)}
    for op in dict.fromkeys(step.op for step in types.steps):
        if not isinstance(op, Forward):
            continue
        track = None if op.features is None else plan.state(op.features)
        if isinstance(track, TrackState):
            given = isinstance(track.layer, str) and track.layer != "last"  # from outside
            if track.name not in kept and not given:
                yield op, f"no forward keeps @{track.name}"
            own = track.model == op.model and not given
            if own and op.shift == 0 and not continues_stack(plan, op):
                yield op, f"@{track.name} holds layer {_layer(track)}; begin layers= there"
            if own and op.shift > 0 and op.layers:
                yield op, "features of earlier nodes enter at the first layer; leave layers= out"
        elif op.shift:
            yield op, "shift= says which node's features= are read, and there are none"
        record = None if op.keep is None else plan.state(op.keep)
        if isinstance(record, TrackState) and record.model == op.model and op.layers:
            wanted = record.layer if isinstance(record.layer, tuple) else (record.layer,)
            for layer in wanted:
                if isinstance(layer, int) and not any(_holds(s, layer) for s in op.layers):
                    yield op, f"layer {layer} of @{record.name} lies outside layers="


def _layer(track: TrackState) -> str:
    return str(list(track.layer)) if isinstance(track.layer, tuple) else str(track.layer)


def _holds(span: Span, layer: int) -> bool:
    return span.start <= layer <= span.stop
