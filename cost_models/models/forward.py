"""What one forward pass of a decoder uses, op by op.

Sources: per-op structure of LLM-Viewer (hahnyuan/LLM-Viewer) and GenZ (abhibambhaniya/GenZ),
with their defects corrected: keys and values counted with KV heads, the LM head at two
operations per multiply-add and only on the rows that need logits, explicit head widths,
experts read as they are expected to be chosen. Norms, activations and residual adds are left
out: compiled kernels fuse them, and their traffic is part of a device's fitted efficiency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specplan.cost_models.cost import Cost, OpCost, Quantity, where_less
from specplan.cost_models.models.layer_ops import (
    Pass,
    attention_core,
    mixer_ops,
    mlp_ops,
    projection_ops,
)
from specplan.cost_models.models.layers import LayerKinds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError


def forward_ops(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    logit_rows: Quantity | None = None,
    layers: tuple[int, int] | None = None,
    dense_block: bool = False,
    tensor_parallel: int = 1,
    skips: Skips = NO_SKIPS,
) -> tuple[OpCost, ...]:
    """Costs of the ops of one forward pass, on each of the devices that share it.

    Args:
        shape: the model.
        batch: sequences, B.
        tokens: query tokens per sequence, n: 1 in decoding, the root and the nodes in
            verification, the prompt in prefill.
        context: tokens already in the cache per sequence, s.
        logit_rows: rows per sequence whose logits are computed; default all `tokens`.
        layers: half-open span of layers; default all. `logit_rows` decides about the LM head.
        dense_block: the kernel computes all n x n pairs among the query tokens (a tree
            mask applied afterwards) rather than the causal half.
        tensor_parallel: devices N that share every layer (Megatron-LM, arXiv 1909.08053):
            projections are split by heads and by inner width, KV heads down to one per device,
            the head by rows; one all-reduce per block and one all-gather of the logits.
        skips: blocks of these layers that are skipped.

    Returns:
        The ops that occur: for each kind of layer `query_key_value` (or `latent_down`, `query_up`,
        `latent_up`), `attention`, `attention_output`, `state_input`, `state_scan`, `state_output`
        of recurrent states, `mlp_up` (gate and up) and `mlp_down` (or
        `router`, `shared_up`, `shared_down`, `expert_up`, `expert_down`); `all_reduce`,
        `embedding_projection`, `feature_projection`, `step_projection`, `lm_head`, `all_gather`.
        Numbers in, numbers out; arrays in, arrays out; sympy symbols in, expressions out.

    Raises:
        UsageError: the layers do not exist, or the devices cannot share their heads evenly.
    """
    first, last = _span(shape, layers)
    rows = tokens if logit_rows is None else logit_rows
    work = Pass(shape, batch, tokens, context, dense_block, tensor_parallel, rows)
    ops = [*_layer_ops(work, shape.kinds(first, last, skips))]
    if first == 0:
        ops += _input_ops(work)
    elif first == last and shape.step_width:
        ops.append(work.linear("step_projection", "other", shape.step_width, shape.hidden_size))
    if hasattr(rows, "dtype"):  # an array: the head runs where there are rows
        runs = where_less(0, rows, 1, 0)
        ops += [op.times(runs) for op in _head_ops(replace(work, tokens=rows))]
    elif rows != 0:
        ops += _head_ops(replace(work, tokens=rows))
    return tuple(ops)


def splits_evenly(shape: ModelShape, devices: int) -> bool:
    """Whether a group of devices can run a model, each with as many heads as the others."""
    try:
        forward_ops(shape, 1, 1, 0, tensor_parallel=shape.sharing(devices))
    except UsageError:
        return False
    return True


def shared(shape: ModelShape, stated: int | None, devices: int) -> ModelShape:
    """A model as a group of devices runs it.

    Args:
        shape: the model.
        stated: devices that share each layer; None for all of the group, or for the most of them
            that can.
        devices: of the group.
    """
    if stated is not None or splits_evenly(shape, devices):
        return replace(shape, shared_by=stated)
    counts = (count for count in range(devices // 2, 0, -1) if devices % count == 0)
    return replace(shape, shared_by=next(one for one in counts if splits_evenly(shape, one)))


def forward_cost(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    logit_rows: Quantity | None = None,
    layers: tuple[int, int] | None = None,
    dense_block: bool = False,
    tensor_parallel: int = 1,
    skips: Skips = NO_SKIPS,
) -> Cost:
    """Sum of `forward_ops`; the same arguments."""
    total = Cost()
    for op in forward_ops(
        shape, batch, tokens, context, logit_rows, layers, dense_block, tensor_parallel, skips
    ):
        total = total + op.total
    return total


def _layer_ops(work: Pass, kinds: LayerKinds) -> Iterator[OpCost]:
    """The blocks of all layers, each kind once with its count."""
    for attention, count in kinds.projections:
        for op in projection_ops(work, attention):
            yield op.times(count)
    for core, count in kinds.attentions:
        yield attention_core(work, core).times(count)
    for mixer, count in kinds.mixers:
        for op in mixer_ops(work, mixer):
            yield op.times(count)
    for mlp, count in kinds.mlps:
        for op in mlp_ops(work, mlp):
            yield op.times(count)
    if work.tensor_parallel > 1 and kinds.blocks:
        yield work.all_reduce().times(kinds.blocks)


def _input_ops(work: Pass) -> Iterator[OpCost]:
    """Projections of embeddings and features to the width of the first layer."""
    shape = work.shape
    if shape.entry_width is not None:
        yield work.linear("embedding_projection", "other", shape.entry_width, shape.hidden_size)
    if shape.feature_width:
        yield work.linear("feature_projection", "other", shape.feature_width, shape.hidden_size)


def _head_ops(work: Pass) -> Iterator[OpCost]:
    """The LM head on the rows of `work`."""
    shape, parts = work.shape, work.tensor_parallel
    if shape.exit_width is not None:
        yield work.linear("embedding_projection", "other", shape.hidden_size, shape.exit_width)
    share = -(-shape.vocab_size // parts)
    yield work.linear("lm_head", "head", shape.embedding_size, share)
    if parts > 1:
        yield work.all_gather(shape.vocab_size)


def _span(shape: ModelShape, layers: tuple[int, int] | None) -> tuple[int, int]:
    first, last = layers if layers is not None else (0, shape.num_layers)
    if not 0 <= first <= last <= shape.num_layers:
        raise UsageError(
            f"layers {first}:{last} do not exist",
            where=shape.name,
            remedy=f"The model has layers 0:{shape.num_layers}.",
        )
    return first, last
