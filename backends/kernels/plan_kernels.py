"""The kernels that the rounds of a plan launch; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from specplan.backends.kernels.fused_parts import Fused, Heads
from specplan.backends.kernels.kernel_folder import BuiltKernel, read_index, serving
from specplan.backends.kernels.variants import (
    DTYPES,
    NUMBER_TYPES,
    Variant,
    acceptance,
    attention,
    layers,
    moves,
    rotation,
)
from specplan.cost_models.models.layers import GroupedAttention
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands
from specplan.ir.plan import CacheState, Plan, walk
from specplan.passes.pipeline import run_passes


def heads_of(shape: ModelShape) -> Heads:
    """What kernels depend on of a model that is not loaded."""
    layers = [layer.attention for layer in shape.layers]
    first = layers[0]
    if not isinstance(first, GroupedAttention):
        return Heads(0, 0, 0, shape.dtype, windowed=True)
    windowed = any(
        not isinstance(one, GroupedAttention) or bool(one.window or one.chunk) for one in layers
    )
    return Heads(first.num_heads, first.num_kv_heads, first.head_dim, shape.dtype, windowed)


def variants_for(plan: Plan, models: Mapping[str, Heads]) -> list[Variant]:
    """The kernels of a plan's rounds, each once: for its heads, number types and sizes of trees.

    Args:
        plan: a verified plan.
        models: by the names the plan gives them.
    """
    fused, lowered = Fused.of(models), run_passes(plan)
    variants = [*_attention(lowered, models, fused), *_endings(lowered, models, fused)]
    for dtype in sorted(fused.layers):
        variants += layers(NUMBER_TYPES[dtype])
    return list({variant.name: variant for variant in variants}.values())


def lacking(folder: Path, plan: Plan, models: Mapping[str, Heads], arch: str) -> list[str]:
    """Kernels that the rounds of a plan launch and a folder does not hold as they are built now.

    Args:
        folder: as `build_kernels` writes it.
        plan: a verified plan.
        models: by the names the plan gives them.
        arch: of the device; where nothing there serves it, nothing is said to be missing.

    Raises:
        UsageError: the folder is not as it was written.
    """
    index = read_index(folder)
    homes = serving(index, arch)
    there = {
        kernel.name: kernel for name in homes for kernel in index.kernels if kernel.arch == name
    }
    return sorted(
        variant.name
        for variant in variants_for(plan, models)
        if not set(homes).isdisjoint(variant.architectures)
        and not _is(there.get(variant.name), variant)
    )


def _is(kernel: BuiltKernel | None, variant: Variant) -> bool:
    """Whether a kernel is launched as this variant is."""
    return kernel is not None and (
        (kernel.function, kernel.signature, kernel.constants, kernel.aligned, kernel.num_warps)
        == (
            variant.kernel,
            list(variant.signature.items()),
            {name: int(value) for name, value in variant.constants.items()},
            list(variant.aligned),
            variant.num_warps,
        )
    )


def _attention(plan: Plan, models: Mapping[str, Heads], fused: Fused) -> Iterator[Variant]:
    lines: dict[tuple[str, int], set[int]] = {}
    for item in plan.rounds:
        for step in round_demands(plan, item).steps:
            if isinstance(step, ForwardDemand) and step.model in fused.attention:
                heads = models[step.model]
                group = heads.queries // heads.kv_heads
                counts = lines.setdefault((heads.word, heads.size), set())
                counts |= {tokens * group for tokens in (step.tokens, step.width)}
    for (dtype, size), counts in lines.items():
        yield from attention(dtype, size, counts)
        yield rotation(dtype, size)


def _endings(plan: Plan, models: Mapping[str, Heads], fused: Fused) -> Iterator[Variant]:
    sizes = {
        models[state.model].size * DTYPES[models[state.model].word]
        for state in plan.states
        if isinstance(state, CacheState) and state.model in fused.moves
    }
    for item in plan.rounds:
        rules = [op.judges_by for op in walk(item.ops) if op.judges_by is not None]
        for rule, tree in zip(rules, round_demands(plan, item).judged, strict=True):
            if rule.name in fused.rules and tree.nodes:
                distinct = not tree.is_chain and "draw" not in tree.origins
                yield acceptance(rule.name, tree.nodes, tree.drawn, distinct)
            if tree.depth:  # chains too: a cache may hold their nodes in another order
                yield from (moves(size, tree.depth) for size in sorted(sizes))
