"""Bytes that a plan needs: weights, caches, workspace and reserve, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from specplan.cost_models.cost import Quantity, maximum, minimum
from specplan.cost_models.intervals import Interval
from specplan.cost_models.memory.buffers import round_buffers, round_peak
from specplan.cost_models.memory.runtime import EAGER, Runtime
from specplan.cost_models.memory.workspace import PREFILL_CHUNK, peak_of, prefill_peak, row_bytes
from specplan.cost_models.models.layers import Attention, GroupedAttention
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import CACHE_FORMATS
from specplan.cost_models.rounds.refreshing import choice_bytes
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.needs import Pass
from specplan.ir.op import Step
from specplan.ir.plan import CacheState, Plan, TrackState, ValueState
from specplan.ir.rules.pending import in_one_pass
from specplan.ir.types.value_types import ROOT, NodesType, TreeType, Type

_ROUNDING = 0.05
"""Relative half width of the interval of a sum of parts: the tests hold it against what was
allocated."""
_POSITION_BYTES = 8.0
"""A cached slot knows its position, and a text its tokens, as int64."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One named part of a plan's memory, bytes: a number, or an array [cells]."""

    name: str
    bytes: Quantity


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """All parts of a plan's memory."""

    parts: tuple[MemoryPart, ...]

    @property
    def total(self) -> Quantity:
        """Sum of all parts, bytes."""
        return sum(part.bytes for part in self.parts)

    @property
    def interval(self) -> Interval:
        """The total, give or take what allocators round and pad."""
        return as_allocated(self.total)

    @property
    def largest(self) -> MemoryPart:
        """The part that takes most; of arrays, in the last cell."""
        return max(self.parts, key=lambda part: float(np.asarray(part.bytes).flat[-1]))


def as_allocated(total: Quantity) -> Interval:
    """A sum of parts, bytes, with its interval."""
    return Interval(total, total * (1.0 - _ROUNDING), total * (1.0 + _ROUNDING))


def plan_memory(
    plan: Plan,
    shapes: Mapping[str, ModelShape],
    batch: Quantity,
    text_tokens: Quantity,
    prompt_tokens: Quantity | None = None,
    runtime: Runtime = EAGER,
) -> PlanMemory:
    """Memory of a plan on all devices together; arrays give many loads at once.

    Every cache has slots for the text, the drafted nodes of the widest round and one dead write.
    Trees that pass from round to round keep the probabilities of their nodes. The workspace is
    that of the prefill or of the round with the highest peak.

    Args:
        plan: a well-typed plan.
        shapes: model shapes by their names in the plan.
        batch: requests, a number or an array [cells].
        text_tokens: prompt and output of the longest request, a number or an array [cells].
        prompt_tokens: longest prompt, for the prefill's workspace; default `text_tokens`.
        runtime: how the runtime uses memory.

    Raises:
        KeyError: the shape of a model is missing.
        InferenceError: the plan is not well typed.
    """
    prompt = text_tokens if prompt_tokens is None else prompt_tokens
    rounds = [round_types(plan, item).steps for item in plan.rounds]
    drafted = _speculative_slots(rounds, plan)
    slots = text_tokens + drafted + 1
    run = {name: shapes[name] for name in plan.models_run}
    parts = [
        MemoryPart(f"weights of {name}", _copies(shape, runtime) * shape.resident_bytes)
        for name, shape in run.items()
    ]
    caches = [state for state in plan.caches if state.view is None or state.budget is not None]
    for cache in caches:
        states = drafted + runtime.spare_states
        if cache.rollback == "replay" and in_one_pass(plan, cache.name):
            states = max(runtime.spare_states, 1)
        shape = shapes[cache.model]
        parts += _cache_parts(cache, shape, batch, slots, drafted, states, runtime)
    parts += _widened([shapes[cache.model] for cache in caches], batch * slots, runtime)
    parts += _tracks(plan, shapes, batch * slots)
    parts += _stored_probabilities(plan, shapes["target"], batch)
    numbers = batch * (len(caches) * slots + 2 * (slots - 1)) * _POSITION_BYTES  # tokens and keys
    parts.append(MemoryPart("positions and texts", numbers))
    together = minimum(batch, maximum(runtime.step_tokens / minimum(prompt, PREFILL_CHUNK), 1.0))
    reads = run.values() if runtime.step_tokens else ()
    peaks = [prefill_peak(shape, together, prompt) for shape in reads]
    peaks += [round_peak(round_buffers(steps, shapes, batch, slots)) for steps in rounds]
    peak = reduce(peak_of, peaks)
    parts.append(MemoryPart("activations", runtime.devices * peak.activations))
    parts.append(MemoryPart("logits and laws", runtime.devices * peak.logits))
    if runtime.graph_bytes:
        graphs = runtime.devices * len(plan.rounds) * runtime.graph_bytes
        parts.append(MemoryPart("graph buffers", graphs))
    if runtime.reserve_bytes:
        parts.append(MemoryPart("framework reserve", runtime.devices * runtime.reserve_bytes))
    return PlanMemory(tuple(parts))


def _cache_parts(
    cache: CacheState,
    shape: ModelShape,
    batch: Quantity,
    slots: Quantity,
    drafted: int,
    stored: int,
    runtime: Runtime,
) -> Iterator[MemoryPart]:
    """Keys and values of one cache, its recurrent states, and by what its heads choose."""
    cached = slots
    if cache.budget is not None:
        cached = minimum(slots, _small(cache, cache.budget, drafted))
    size = batch * cache_bytes(shape, cached, drafted + 1, runtime)
    yield MemoryPart(f"cache @{cache.name}", size)
    if states := stored * shape.state_bytes * _copies(shape, runtime):
        yield MemoryPart(f"states of @{cache.name}", batch * states)
    if choices := choice_bytes(cache, shape):
        yield MemoryPart(f"choices of @{cache.name}", batch * choices)


def _widened(
    shapes: Sequence[ModelShape], cached: Quantity, runtime: Runtime
) -> Iterator[MemoryPart]:
    """The largest layer's keys and values in the model's type, of caches in another one."""
    sizes = [
        attention.cached_elements * shape.activation_width
        for shape in shapes
        if shape.kv_format.name in CACHE_FORMATS and shape.kv_format.name != shape.dtype
        for attention, _ in shape.kinds(0, shape.num_layers).attentions
    ]
    if sizes and runtime.widens_caches:
        yield MemoryPart("keys and values of a layer, widened", cached * max(sizes))


def _tracks(plan: Plan, shapes: Mapping[str, ModelShape], tokens: Quantity) -> Iterator[MemoryPart]:
    """Hidden states of one layer that rounds store, for the tokens of all requests."""
    for track in plan.states:
        if isinstance(track, TrackState) and isinstance(track.layer, int):
            shape = shapes[track.model]
            size = tokens * shape.hidden_size * shape.activation_width
            yield MemoryPart(f"track @{track.name}", size)


def _stored_probabilities(plan: Plan, target: ModelShape, batch: Quantity) -> Iterator[MemoryPart]:
    """Probabilities of drawn trees that pass from round to round."""
    for state in plan.states:
        if isinstance(state, ValueState) and state.keeps_probs:
            size = row_bytes(target, batch, state.kind.integer("nodes", 0))
            yield MemoryPart(f"laws @{state.name}", size)


def _small(state: CacheState, budget: int, drafted: int) -> int:
    """Slots of a cache with a budget: what it takes in before it forgets is beyond that."""
    return budget + drafted + 1 + (1 if state.view else min(PREFILL_CHUNK, budget))


def cache_bytes(
    shape: ModelShape, slots: Quantity, beside: int = 0, runtime: Runtime = EAGER
) -> Quantity:
    """Keys and values of one sequence on all devices together.

    Args:
        shape: the model.
        slots: of text and drafted nodes.
        beside: of them, slots of drafted nodes and dead writes, which no window forgets.
        runtime: whether layers keep only their window, and how many devices there are.
    """
    width = shape.kv_format.bytes_per_element * _copies(shape, runtime)
    sharing = shape.sharing(runtime.devices)
    total: Quantity = 0.0
    for attention, layers in shape.kinds(0, shape.num_layers).attentions:
        cached = slots
        if runtime.windowed_caches and attention.reach is not None:
            cached = minimum(slots, attention.reach + beside)
        total += layers * cached * attention.cached_elements * _holders(attention, sharing)
    return total * width


def _copies(shape: ModelShape, runtime: Runtime) -> float:
    """Copies of a model on all devices, as many as the fullest device has room for."""
    return runtime.devices / shape.sharing(runtime.devices)


def _holders(attention: Attention, devices: int) -> float:
    """How many devices hold a cached element: key heads are split down to one per device."""
    if not isinstance(attention, GroupedAttention):
        return float(devices)
    heads = attention.num_kv_heads
    return devices * -(-heads // devices) / heads


def speculative_slots(plan: Plan) -> int:
    """Most cache slots that drafted nodes take between two commits, and one for the root.

    Every pass over a cache takes a slot for each drafted node of its operands.
    """
    return _speculative_slots([round_types(plan, item).steps for item in plan.rounds], plan)


def _speculative_slots(rounds: Iterable[Sequence[Step]], plan: Plan) -> int:
    most, living = 0, 0
    for steps in rounds:
        taken: Counter[str] = Counter()
        for step in steps:
            needed = step.op.demand(step, plan)
            if isinstance(needed, Pass):
                taken[needed.cache] += sum(map(_drafted_columns, step.reads.values()))
            lives_on = getattr(step.op, "alive", None)
            if lives_on is not None:
                living = max(living, _drafted_columns(step.reads[lives_on]))
        most = max(most, *taken.values(), 0)
    return 1 + most + living


def _drafted_columns(operand: Type) -> int:
    """Columns of a pass that hold drafted nodes; the root is text where its place is known."""
    if isinstance(operand, TreeType):
        return operand.nodes
    if not isinstance(operand, NodesType):
        return 0
    known = operand.indices
    rooted = known is not None and known == tuple(range(ROOT, ROOT + len(known)))
    return operand.width - rooted


def largest_batch(
    plan: Plan,
    shapes: Mapping[str, ModelShape],
    memory_bytes: float,
    text_tokens: int,
    prompt_tokens: int | None = None,
    runtime: Runtime = EAGER,
) -> int:
    """Most requests whose memory fits; 0 when not even one does."""
    load = text_tokens, prompt_tokens, runtime
    return largest(lambda batch: plan_memory(plan, shapes, batch, *load).total <= memory_bytes)


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number from 1 on that fits, 0 for none; larger ones than an unfit do not."""
    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
