"""What is known of a plan before it runs, gathered once for all batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specplan.backends.eager.caches import Layers
from specplan.backends.eager.passes import (
    Stretch,
    node_slots,
    segments_of,
    stretch_of,
    whole_stack,
)
from specplan.backends.eager.placing import Placement, placements, plain_caches
from specplan.backends.reference.stopping import judged_nodes
from specplan.ir.infer import infer_round
from specplan.ir.lifetimes import last_reads
from specplan.ir.ops import Forward, Grow, Measure, Mix, Op, Pick, Score
from specplan.ir.plan import CacheState, Plan, ValueState, walk_plan
from specplan.ir.types import Type
from specplan.ir.values import Value
from specplan.runtime.models import CausalModel


@dataclass(frozen=True)
class Prepared:
    """A plan, and what its ops need to know.

    Attributes:
        plan: the plan.
        types: by op and trip, what the verifier knows of what an op gives.
        reads: the same of what it reads.
        placements: by forward and trip, slots of nodes where they are known.
        plain: caches that are run in one way only, and whether that is scratch.
        stretches: by the identity of a forward, what it runs.
        segments: by the name of a cache, spans of its layers.
        whole: by the name of a cache, how prompts run through its model.
        spent: by the identity of an op, values that nothing reads after it.
        judged: by the identity of an op that judges, the nodes of its tree when all trips run.
        scored: some op reads scores of nodes.
        mixes: some op reads the rows that trees were grown from.
        drawn: value states whose nodes keep the laws that they were drawn from.
        speculative: cache slots for a round's nodes.
    """

    plan: Plan
    types: Mapping[tuple[int, int], tuple[Type, ...]]
    reads: Mapping[tuple[int, int], Mapping[Value, Type]]
    placements: Mapping[tuple[int, int], Placement]
    plain: Mapping[str, bool]
    stretches: Mapping[int, Stretch]
    segments: Mapping[str, tuple[Layers, ...]]
    whole: Mapping[str, Stretch]
    spent: Mapping[int, tuple[Value, ...]]
    judged: Mapping[int, int]
    scored: bool
    mixes: bool
    drawn: frozenset[str]
    speculative: int

    def read(self, op: Op, trip: int, name: Value) -> Type:
        """What the verifier knows of an operand."""
        return self.reads[id(op), trip][name]


def prepare(plan: Plan, models: Mapping[str, CausalModel]) -> Prepared:
    """Gather what a plan's ops need to know."""
    steps = [step for item in plan.rounds for step in infer_round(plan, item).steps]
    segments = segments_of(plan, models)
    forwards = [op for op in walk_plan(plan) if isinstance(op, Forward)]
    readers = {op.cache for op in forwards if _reads_another(plan, op)}
    caches = [state for state in plan.states if isinstance(state, CacheState)]
    return Prepared(
        plan=plan,
        types={(id(step.op), step.trip): step.gives for step in steps},
        reads={(id(step.op), step.trip): step.reads for step in steps},
        placements=placements(plan),
        plain=plain_caches(plan),
        stretches={
            id(op): stretch_of(plan, op, models[op.model].num_layers, segments) for op in forwards
        },
        segments=segments,
        whole={
            str(state.name): whole_stack(
                plan, state, models[state.model].num_layers, segments[state.name]
            )
            for state in caches
            if state.name not in readers
        },
        spent=last_reads(plan),
        judged=judged_nodes(plan),
        scored=any(map(_reads_scores, walk_plan(plan))),
        mixes=any(isinstance(op, Mix) for op in walk_plan(plan)),
        drawn=frozenset(
            str(state.name)
            for state in plan.states
            if isinstance(state, ValueState) and state.keeps_laws
        ),
        speculative=node_slots(plan),
    )


def _reads_another(plan: Plan, op: Forward) -> bool:
    """Whether a forward reads hidden states of another model."""
    track = None if op.features is None else plan.state(op.features)
    return track is not None and getattr(track, "model", None) != op.model


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
