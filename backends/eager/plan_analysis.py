"""What is known of a plan before it runs, gathered once for all batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specplan.backends.eager.passes.pass_spec import (
    plain_caches,
    segments_of,
    spec_of,
    turning_caches,
    whole_stack,
)
from specplan.backends.eager.state.static_slots import places
from specplan.cost_models.memory.plan_memory import speculative_slots
from specplan.ir.ops import Accept, Forward, Grow, Measure, Mix, Op, Pick, Score
from specplan.ir.plan import CacheState, Plan, TrackState, ValueState, walk_plan
from specplan.ir.rules.pending import in_one_pass
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.infer import Step, infer_round
from specplan.ir.types.lifetimes import last_reads
from specplan.ir.types.value_types import ROOT, LogitsType, NodesType, TreeType
from specplan.ir.values import State
from specplan.runtime.models.modules import Module


class PlanAnalysis:
    """A plan, and what its ops need to know.

    Attributes:
        plan: the plan.
        steps: by op and trip, what the verifier knows of what an op reads and gives.
        places: what is known of slots of nodes.
        plain: caches that are run in one way only, and whether that is scratch.
        turning: caches that scratch writes after passes for good in some round, and whether these
            come again.
        pass_specs: by the identity of a forward, what it runs.
        segments: by the name of a cache, spans of its layers.
        whole: by the name of a cache, how text runs through all of its model.
        prefilled: caches whose prompts run so before the first round; others read theirs in it.
        read_by_others: those among the others that wait only since other models read the states.
        read_from_root: tracks of whose text no pass reads what stands before the root.
        spent: by the identity of an op, values that nothing reads after it.
        judged: by the identity of an op that judges, how many nodes it judges at most.
        scored: some op reads scores of nodes.
        mixes: some op reads the rows that trees were grown from.
        drawn: value states whose nodes keep the laws that they were drawn from.
        speculative: cache slots for a round's nodes.
        passing: caches whose recurrent states of drafted nodes do not outlive their pass.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Module]) -> None:
        steps = [step for item in plan.rounds for step in infer_round(plan, item).steps]
        ops = [*walk_plan(plan)]
        layers = {name: model.num_layers for name, model in models.items()}
        self.plan = plan
        self.steps = {(id(step.op), step.trip): step for step in steps}
        self.segments = segments_of(plan, models)
        self.pass_specs = {
            id(op): spec_of(plan, op, layers[op.model], self.segments)
            for op in ops
            if isinstance(op, Forward)
        }
        self.places = places(plan, self.pass_specs, self.segments)
        self.pass_specs |= {
            key: replace(self.pass_specs[key], new_nodes=new)
            for key, new in self.places.new_nodes.items()
        }
        self.plain, self.turning = plain_caches(plan), turning_caches(plan)
        self.whole = {
            str(state.name): whole_stack(plan, state, layers[state.model], self.segments)
            for state in plan.states
            if isinstance(state, CacheState)
        }
        self.prefilled, self.read_by_others = map(frozenset, prefilled_caches(plan))
        self.read_from_root = frozenset(
            str(state.name) for state in plan.states if isinstance(state, TrackState)
        ) - {str(s.op.features) for s in steps if isinstance(s.op, Forward) and reads_text(s, s.op)}
        self.spent = last_reads(plan)
        self.judged = judged_nodes(steps)
        self.scored = any(map(_reads_scores, ops))
        self.mixes = any(isinstance(op, Mix) for op in ops)
        self.drawn = frozenset(
            str(state.name)
            for state in plan.states
            if isinstance(state, ValueState) and state.keeps_probs
        )
        self.passing = frozenset(
            str(state.name)
            for state in plan.caches
            if state.rollback == "replay" and in_one_pass(plan, state.name)
        )
        self.speculative = speculative_slots(plan) + _slots_ahead(steps, models)


def prefilled_caches(plan: Plan) -> tuple[set[State], set[State]]:
    """Caches whose prompts may run through the whole stack before the first round.

    And those whose prompts might, did not other models read the states of all but the last token in
    the first round, too.

    A prompt is read by the passes of the first round, in a wider form: where these do otherwise
    than the whole stack does, read what the round has not yet computed, or bound the tokens of all
    requests, it is left to them.
    Where the round asks how much text some layers lack, they lack all of it at first. A view is a
    copy of what its cache has read, so that this one reads before.
    """
    asked = (op.operand for op in walk_plan(plan) if isinstance(op, Measure))
    lagging = (plan.state(state) for state in asked if isinstance(state, State))
    late, read = {cache.model for cache in lagging if isinstance(cache, CacheState)}, set[str]()
    for op in (op for op in walk_plan(plan) if isinstance(op, Forward)):
        track = None if op.features is None else plan.state(op.features)
        if isinstance(track, TrackState) and (track.model != op.model or op.shift):
            late.add(op.model)
            read.add(track.model)
        if op.write == "exact" and (len(op.layers) > 1 or op.only or op.attend == "block"):
            late.add(op.model)
        if op.most is not None:  # prompts ride along with the requests that decode
            late.add(op.model)
    caches = [state for state in plan.states if isinstance(state, CacheState)]
    viewed = {state.view for state in caches}
    early = {s.name for s in caches if s.model not in late | read or s.name in viewed}
    return early, {s.name for s in caches if s.model in read - late and s.name not in viewed}


def reads_text(step: Step, op: Forward) -> bool:
    """Whether a forward reads states of text before the root, where it reads states at all."""
    for name in op.nodes:
        nodes = step.reads[name]
        possible = nodes.possible if isinstance(nodes, NodesType) else None
        if possible is None or ROOT in possible:
            return True  # the root, and with it text that is pending
    return op.shift > 1 or op.pending > 1


def _reads_scores(op: Op) -> bool:
    """Whether an op asks for the scores of nodes."""
    if isinstance(op, Pick):
        chosen = (op.best, op.worst, op.count, op.above)
        return any(one is not None for one in chosen)
    if isinstance(op, Grow):
        return op.keep is not None
    if isinstance(op, Score):
        return True
    return isinstance(op, Measure) and op.kind.name == "value"


def _slots_ahead(steps: Sequence[Step], models: Mapping[str, Module]) -> int:
    """Cache slots for what looks ahead of nodes, in all passes of all rounds."""
    slots = 0
    for step in steps:
        if not isinstance(step.op, Forward):
            continue
        ahead = step.op.most_levels - 1 + models[step.op.model].slots_first
        if ahead:
            nodes = (step.reads[name] for name in step.op.nodes)
            wide = (n.nodes + 1 if isinstance(n, TreeType) else n.width for n in nodes
                    if isinstance(n, TreeType | NodesType))  # fmt: skip
            slots += ahead * sum(wide)
    return slots


def judged_nodes(steps: Sequence[Step]) -> dict[int, int]:
    """By the identity of an op that judges below the root, how many nodes it judges at most.

    Loops may end early, and of a chain nodes without logits are not judged: the bonus is drawn with
    the same number however many there are. Rules that draw by place take all numbers.
    """
    judged: dict[int, int] = {}
    for step in steps:
        op = step.op
        if isinstance(op, Accept) and op.at is None and op.target and not _draws_by_place(op):
            tree, rows = step.reads[op.tree], step.reads[op.target]
            assert isinstance(tree, TreeType) and isinstance(rows, LogitsType)
            judged[id(op)] = min(tree.nodes, rows.width) if tree.is_chain else tree.nodes
    return judged


def _draws_by_place(op: Accept) -> bool:
    rule = BUILTIN.find("rule", op.rule.name)
    return rule is not None and rule.draws_by_place
