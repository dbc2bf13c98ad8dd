"""Bytes that a plan needs: weights, caches and workspace, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specplan.cost_models.intervals import Interval
from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.round_types import round_types
from specplan.ir.infer import Step
from specplan.ir.ops import Accept, Forward
from specplan.ir.plan import CacheState, Plan
from specplan.ir.types import NodesType, RowsType, TreeType

FLOAT32 = 4.0
PREFILL_CHUNK = 512
"""Prompt tokens that run in one pass at most."""
_ROUNDING = 0.05
"""Relative half width of the interval of a sum of parts."""
_DRAWN = frozenset({"draw", "draw_distinct", "shared"})


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One named part of a plan's memory, bytes."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """All parts of a plan's memory."""

    parts: tuple[MemoryPart, ...]

    @property
    def total(self) -> float:
        """Sum of all parts, bytes."""
        return sum(part.bytes for part in self.parts)

    @property
    def interval(self) -> Interval:
        """The total, give or take what allocators round and pad."""
        return Interval(self.total, self.total * (1.0 - _ROUNDING), self.total * (1.0 + _ROUNDING))

    @property
    def largest(self) -> MemoryPart:
        """The part that takes most."""
        return max(self.parts, key=lambda part: part.bytes)


def plan_memory(
    plan: Plan,
    shapes: Mapping[str, ModelShape],
    batch: int,
    text_tokens: int,
    prompt_tokens: int | None = None,
) -> PlanMemory:
    """Memory of a plan.

    Every cache holds the text, the speculative slots of the widest round and one slot for dead
    writes. Workspace is the largest of what one pass needs, since passes follow each other.

    Args:
        plan: a well-typed plan.
        shapes: by the model's name in the plan.
        batch: requests.
        text_tokens: prompt and output of the longest request.
        prompt_tokens: longest prompt, for the prefill's workspace; default `text_tokens`.

    Raises:
        KeyError: the shape of a model is missing.
        InferenceError: the plan is not well typed.
    """
    prompt = text_tokens if prompt_tokens is None else prompt_tokens
    steps = list(_steps(plan))
    slots = text_tokens + speculative_slots(plan) + 1
    parts = [
        MemoryPart(f"weights of {name}", shapes[name].weight_bytes) for name in plan.models_run
    ]
    for state in plan.states:
        if isinstance(state, CacheState):
            kept = slots if state.budget is None else min(slots, state.budget)
            per_token = shapes[state.model].kv_bytes_per_token
            parts.append(MemoryPart(f"cache @{state.name}", batch * kept * per_token))
    forwards = [step for step in steps if isinstance(step.op, Forward)]
    passes = [
        (shapes[step.op.model], _width(step)) for step in forwards if isinstance(step.op, Forward)
    ]
    passes += [(shapes[name], min(prompt, PREFILL_CHUNK)) for name in plan.models_run]
    activations = max(
        (pass_bytes(shape, batch, width, slots) for shape, width in passes), default=0.0
    )
    parts.append(MemoryPart("activations", activations))
    logits = sum(
        batch * rows * shape.vocab_size * FLOAT32 for shape, rows in _live_rows(forwards, shapes)
    )
    parts.append(MemoryPart("logits", logits))
    vocabulary = shapes["target"].vocab_size if "target" in shapes else 0
    judged = max((_law_rows(step) for step in steps), default=0)
    parts.append(MemoryPart("laws", batch * judged * vocabulary * FLOAT32))
    return PlanMemory(tuple(parts))


def pass_bytes(shape: ModelShape, batch: int, tokens: int, slots: int) -> float:
    """Activations of one layer of a forward pass: MLP, residual stream, scores and mask."""
    inner = max(layer.mlp.active_width + 2 * layer.attention.query_width for layer in shape.layers)
    width = inner + 4 * shape.hidden_size
    scores = batch * shape.num_heads * tokens * slots * FLOAT32
    return batch * tokens * (width * shape.activation_width + slots) + scores


def speculative_slots(plan: Plan) -> int:
    """Most cache slots that drafted nodes of one round, and its root, may take."""
    most = 1
    for step in _steps(plan):
        if isinstance(step.op, Forward):
            for held in step.reads.values():
                if isinstance(held, TreeType):
                    most = max(most, held.nodes + 1)
                elif isinstance(held, NodesType) and held.indices:
                    most = max(most, max(held.indices) + 2)
    return most


def largest_batch(
    plan: Plan,
    shapes: Mapping[str, ModelShape],
    memory_bytes: float,
    text_tokens: int,
    prompt_tokens: int | None = None,
) -> int:
    """Most requests whose memory fits; 0 when not even one does. Memory is affine in them."""
    one = plan_memory(plan, shapes, 1, text_tokens, prompt_tokens).total
    more = plan_memory(plan, shapes, 2, text_tokens, prompt_tokens).total - one
    if one > memory_bytes:
        return 0
    return 1 + int((memory_bytes - one) / more)


def _steps(plan: Plan) -> Iterator[Step]:
    for item in plan.rounds:
        yield from round_types(plan, item).steps


def _width(step: Step) -> int:
    assert isinstance(step.op, Forward)
    pending = step.op.pending if isinstance(step.op.pending, int) else max(step.op.pending)
    nodes = sum(
        held.nodes if isinstance(held, TreeType) else held.width
        for held in (step.reads[name] for name in step.op.nodes)
        if isinstance(held, TreeType | NodesType)
    )
    return nodes + max(pending, 1)


def _live_rows(
    forwards: list[Step], shapes: Mapping[str, ModelShape]
) -> Iterator[tuple[ModelShape, int]]:
    """Rows of logits that a round holds: all of them, since its trees keep their laws."""
    for step in forwards:
        assert isinstance(step.op, Forward)
        for given in step.gives:
            if isinstance(given, RowsType):
                yield shapes[step.op.model], given.width


def _law_rows(step: Step) -> int:
    if not isinstance(step.op, Accept) or step.op.rule.name == "greedy":
        return 0
    judged = step.reads[step.op.tree]
    assert isinstance(judged, TreeType)
    drafted = judged.nodes if judged.laws & _DRAWN else 0
    return judged.nodes + 1 + drafted
