"""Rules about blocks that a source says to leave out, and about trials of its sets."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.infer import RoundTypes, Step
from specplan.ir.left_out import block_counts
from specplan.ir.ops import Emit, Forward, Lookup, Op, Update
from specplan.ir.plan import Plan, Round, SourceState, walk, walk_plan
from specplan.ir.tables import Tables
from specplan.ir.types import TreeType
from specplan.ir.values import Entry, State

Finding = tuple[Op | None, str]


def blocks(plan: Plan, item: Round, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """Sources of blocks say what passes leave out, and learn how their trials went."""
    for op in walk(item.ops):
        if isinstance(op, Lookup) and _gives_blocks(plan, op.source, tables):
            yield op, f"@{op.source} gives blocks to leave out, and no tokens"
        elif isinstance(op, Forward):
            what = _misnamed(plan, op, tables)
            if what is not None:
                yield op, what
    yield from _trials(types)
    yield from _updates(plan, types, tables)


def uncounted_blocks(kind: Entry, tables: Tables) -> Iterator[str]:
    """What is wrong with the numbers of blocks that a source of blocks is to leave out."""
    declared = tables.find("source", kind.name)
    if declared is None or declared.gives != "blocks":
        return
    layers, *counts = block_counts(kind)
    if max(counts) > layers - 2 or not any(counts):
        yield (
            f"of {layers} layers, whose first and last are kept, attention= and mlp= leave out at "
            f"most {layers - 2} each, and one block in all"
        )


def _gives_blocks(plan: Plan, name: State, tables: Tables) -> bool:
    state = plan.state(name)
    declared = tables.find("source", state.kind.name) if isinstance(state, SourceState) else None
    return declared is not None and declared.gives == "blocks"


def _misnamed(plan: Plan, op: Forward, tables: Tables) -> str | None:
    """Why a forward cannot leave out what it says."""
    if not isinstance(op.skip, State):
        return "trial=true runs the set that a source tries: give skip=@name" if op.trial else None
    source = plan.state(op.skip)
    if not _gives_blocks(plan, op.skip, tables):
        return f"@{op.skip} gives tokens; skip= takes a source of blocks, or blocks by name"
    if not isinstance(source, SourceState) or source.scope != "process":
        return f"one pass serves all requests of a batch: declare @{op.skip} with scope=process"
    others = {
        other.model
        for other in walk_plan(plan)
        if isinstance(other, Forward) and other.skip == op.skip and isinstance(other.skip, State)
    }
    return f"@{op.skip} holds blocks of one model" if len(others) > 1 else None


def _trials(types: RoundTypes) -> Iterator[Finding]:
    """A trial runs a whole tree, once, and what it gives teaches its source and nothing else."""
    tried: dict[int, Step] = {}
    taught: set[int] = set()
    for step in types.steps:
        op = step.op
        for held in step.reads.values():
            trial = tried.get(id(held))
            if trial is None:
                continue
            assert isinstance(trial.op, Forward)
            if isinstance(op, Update) and op.source == trial.op.skip:
                if id(held) in taught or step.trips > 1:
                    yield op, "its tokens count once: one update, outside of loops"
                taught.add(id(held))
            else:
                yield op, f"rows of a trial teach @{trial.op.skip} and serve nothing else"
        if not isinstance(op, Forward) or not op.trial:
            continue
        held = step.reads[op.nodes[0]]
        if len(op.nodes) > 1 or not isinstance(held, TreeType) or step.trips > 1:
            yield op, "a trial runs on all nodes of one tree, outside of loops"
        elif len(step.gives) != 1 or op.write != "scratch" or op.layers or op.keep is not None:
            yield op, "a trial runs the whole stack as scratch, and gives logits alone"
        else:
            tried[id(step.gives[0])] = step
    for given, step in tried.items():
        if given not in taught:
            assert isinstance(step.op, Forward)
            yield step.op, f"nothing learns how it went: update @{step.op.skip} with its rows"


def _updates(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A source of blocks is taught by the rows of its trial, once the text goes on."""
    emitted = False
    sources = {
        id(given): step.op.skip
        for step in types.steps
        if isinstance(step.op, Forward) and step.op.trial
        for given in step.gives
    }
    for step in types.steps:
        op = step.op
        emitted = emitted or isinstance(op, Emit)
        if not isinstance(op, Update) or not _gives_blocks(plan, op.source, tables):
            continue
        if op.logits is None or sources.get(id(step.reads[op.logits])) != op.source:
            yield op, f"@{op.source} learns from rows of its trial: forward skip=@{op.source} trial"
        elif not emitted:
            yield op, "which tokens the text has is known once they are emitted: update after emit"
