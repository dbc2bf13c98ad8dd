"""Which ops of a forward pass the tables hold, and what they say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specplan.cost_models.cost import OpCost, Quantity, minimum
from specplan.cost_models.devices.silicon.attention import AttentionSize
from specplan.cost_models.devices.silicon.experts import Family
from specplan.cost_models.devices.silicon.grid import Reading
from specplan.cost_models.devices.silicon.tables import KernelTables
from specplan.cost_models.models.layers import Attention, ExpertMlp, GroupedAttention, LayerKinds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import NumberFormat

_PARTS = {
    "query_key_value": "attention",
    "attention_output": "attention",
    "query_up": "attention",
    "latent_down": "attention",
    "mlp_up": "mlp",
    "mlp_down": "mlp",
    "shared_up": "shared_experts",
    "shared_down": "shared_experts",
    "router": "router",
    "lm_head": "head",
    "embedding_projection": "other",
}
"""Part of `WeightFormats` whose format a matrix product's weights have."""

Price = tuple[Any, Reading]


@dataclass(frozen=True, slots=True)
class Part:
    """Ops that one kernel of the tables does, or one op that they lack.

    Attributes:
        ops: of the forward pass.
        price: seconds of one execution and the reading behind them; None for a missing op.
        sources: files of the tables that it comes from.
    """

    ops: tuple[OpCost, ...]
    price: Price | None
    sources: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return " and ".join(op.name for op in self.ops)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a forward pass takes place.

    Attributes:
        shape: the model.
        batch: sequences.
        tokens: query tokens of each.
        context: tokens in the cache before them.
        kinds: of its layers.
        devices: that share every layer.
    """

    shape: ModelShape
    batch: Quantity
    tokens: Quantity
    context: Quantity
    kinds: LayerKinds
    devices: int


def read_parts(tables: KernelTables, place: Place, ops: Sequence[OpCost]) -> Iterator[Part]:
    """Look every op of a forward pass up.

    Args:
        tables: of the system and stack.
        place: what the ops belong to.
        ops: of `forward_ops`, which lists attentions and mixtures in the order of `place.kinds`.
    """
    cores = iter(core for core, _ in place.kinds.attentions)
    mixtures = iter(mlp for mlp, _ in place.kinds.mlps if isinstance(mlp, ExpertMlp))
    waiting: OpCost | None = None
    for op in ops:
        if op.name == "attention":
            yield _attention(tables, place, next(cores), op)
        elif op.name == "expert_up":
            waiting = op
        elif op.name == "expert_down" and waiting is not None:
            yield from _experts(tables, place, next(mixtures), waiting, op)
        elif op.name == "all_reduce":
            yield _all_reduce(tables, place, op)
        else:
            yield _product(tables, place.shape, op)


def _product(tables: KernelTables, shape: ModelShape, op: OpCost) -> Part:
    if op.matrix is None or op.name not in _PARTS:
        return Part((op,), None)
    for name in table_formats(shape.formats.part(_PARTS[op.name]), shape.dtype):
        table = tables.products(name)
        if table is not None and table.holds(op.matrix.outputs, op.matrix.inputs):
            rows = np.maximum(op.matrix.rows, 1.0)
            price = table.seconds(rows, op.matrix.outputs, op.matrix.inputs)
            return Part((op,), price, (table.source,))
    return Part((op,), None)


def _all_reduce(tables: KernelTables, place: Place, op: OpCost) -> Part:
    table = tables.reduction()
    if table is None:
        return Part((op,), None)
    return Part((op,), table.seconds(place.devices, op.cost.link_bytes), (table.source,))


def _attention(tables: KernelTables, place: Place, core: Attention, op: OpCost) -> Part:
    shape, form = place.shape, place.shape.kv_format
    table = tables.attention()
    if table is None or not isinstance(core, GroupedAttention) or core.chunk is not None:
        return Part((op,), None)
    if shape.dtype not in ("bfloat16", "float16"):
        return Part((op,), None)
    reach = place.context if core.window is None else minimum(place.context, core.window - 1)
    size = AttentionSize(
        batch=place.batch,
        tokens=place.tokens,
        reach=reach,
        heads=core.num_heads // place.devices,
        kv_heads=max(1, core.num_kv_heads // place.devices),
        head_dim=core.head_dim,
        kv_format="bfloat16" if form.name == "float16" else form.name,
    )
    return Part((op,), table.seconds(size), table.sources)


def _experts(
    tables: KernelTables, place: Place, mlp: ExpertMlp, up: OpCost, down: OpCost
) -> Iterator[Part]:
    """One kernel does both products of gated experts."""
    shape = place.shape
    names = table_formats(shape.formats.experts, shape.dtype) if mlp.gated else ()
    expert_table = next((table for name in names if (table := tables.experts(name))), None)
    if expert_table is None:
        yield from (Part((up,), None), Part((down,), None))
        return
    family = Family(
        shape.hidden_size,
        mlp.intermediate_size / place.devices,
        mlp.active_experts,
        mlp.num_experts,
    )
    tokens = np.maximum(place.batch * place.tokens, 1.0)
    yield Part((up, down), expert_table.seconds(family, tokens), (expert_table.source,))


def table_formats(form: NumberFormat, dtype: str) -> tuple[str, ...]:
    """Names of a weight format in the tables, best first; none where they cannot hold it.

    Args:
        form: of the weights.
        dtype: of the activations.
    """
    if form.math == "fp8":
        return ("fp8_block", "fp8") if form.block_elements > 1 else ("fp8", "fp8_block")
    if form.math in ("fp4", "int8"):
        return ("nvfp4",) if form.math == "fp4" else ("sq",)
    if form.math is not None or dtype not in ("bfloat16", "float16"):
        return ()
    for low, high, name in ((0.5, 0.6, "int4_wo"), (1.0, 1.2, "int8_wo"), (2.0, 2.0, "bfloat16")):
        if low <= form.bytes_per_element <= high:
            return (name,)
    return ()
