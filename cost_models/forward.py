"""What one forward pass of a dense transformer uses, op by op.

Sources: per-op structure of LLM-Viewer (hahnyuan/LLM-Viewer) and GenZ (abhibambhaniya/GenZ),
with their defects corrected: keys and values counted with KV heads, the LM head at two
operations per multiply-add and only on the rows that need logits, explicit head widths.
Norms, activations and residual adds are left out: compiled kernels fuse them, and their
traffic is part of a device's fitted efficiency.
"""

from __future__ import annotations

from collections import Counter

from specplan.cost_models.cost import Cost, Matrix, OpCost, Quantity, maximum, minimum
from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.parameters import layer_biases
from specplan.ir.errors import UsageError


def forward_ops(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    logit_rows: Quantity | None = None,
    layers: tuple[int, int] | None = None,
    dense_block: bool = False,
) -> tuple[OpCost, ...]:
    """Costs of the ops of one forward pass.

    Args:
        shape: the model.
        batch: sequences, B.
        tokens: query tokens per sequence, n: 1 in decoding, nodes and root in
            verification, the prompt in prefill.
        context: tokens already in the cache per sequence, s.
        logit_rows: rows per sequence whose logits are computed; default all `tokens`.
        layers: half-open span of layers; default all. The LM head is `logit_rows`' matter.
        dense_block: the kernel computes all n x n pairs among the query tokens (a tree
            mask applied afterwards) rather than the causal half.

    Returns:
        `query_key_value`, `attention`, `attention_output`, `mlp_up` (gate and up),
        `mlp_down`, `embedding_projection` and `lm_head`, those that occur; `attention` once
        per kind of window. Numbers in, numbers out; sympy symbols in, expressions out.
    """
    first, last = _span(shape, layers)
    count = last - first
    rows = tokens if logit_rows is None else logit_rows
    headless = isinstance(rows, int | float) and rows == 0
    total = batch * tokens
    hidden = shape.hidden_size
    queries = shape.num_heads * shape.head_dim
    keys = shape.num_kv_heads * shape.head_dim
    up = shape.intermediate_size * (2 if shape.gated_mlp else 1)
    biases = layer_biases(shape)

    def linear(name: str, inputs: int, outputs: int) -> OpCost:
        return linear_op(name, shape, total, inputs, outputs, biases[name], count)

    ops = [
        linear("query_key_value", hidden, queries + 2 * keys),
        *(
            OpCost(
                "attention",
                attention_cost(shape, batch, tokens, context, window, dense_block),
                times,
            )
            for window, times in Counter(shape.layer_windows[first:last]).items()
        ),
        linear("attention_output", queries, hidden),
        linear("mlp_up", hidden, up),
        linear("mlp_down", shape.intermediate_size, hidden),
    ]
    ops = [op for op in ops if op.count]
    if shape.embedding_size != hidden:
        if first == 0:
            ops.append(
                linear_op("embedding_projection", shape, total, shape.embedding_size, hidden)
            )
        if not headless:
            ops.append(
                linear_op("embedding_projection", shape, batch * rows, hidden, shape.embedding_size)
            )
    if not headless:
        ops.append(
            linear_op("lm_head", shape, batch * rows, shape.embedding_size, shape.vocab_size)
        )
    return tuple(ops)


def forward_cost(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    logit_rows: Quantity | None = None,
    layers: tuple[int, int] | None = None,
    dense_block: bool = False,
) -> Cost:
    """Sum of `forward_ops`; the same arguments."""
    total = Cost()
    for op in forward_ops(shape, batch, tokens, context, logit_rows, layers, dense_block):
        total = total + op.total
    return total


def linear_op(
    name: str,
    shape: ModelShape,
    rows: Quantity,
    inputs: int,
    outputs: int,
    bias: int = 0,
    count: Quantity = 1,
) -> OpCost:
    """A matrix product with its sizes; see `linear_cost`."""
    cost = linear_cost(shape, rows, inputs, outputs, bias)
    return OpCost(name, cost, count, Matrix(rows, inputs, outputs))


def linear_cost(
    shape: ModelShape, tokens: Quantity, inputs: int, outputs: int, bias: int = 0
) -> Cost:
    """A matrix product: F = 2 T k m, bytes = w k m + a T (k + m).

    Args:
        shape: gives the bytes per weight (w) and per activation (a, the same).
        tokens: rows T.
        inputs: k.
        outputs: m.
        bias: bias parameters added to the outputs, each once per row.
    """
    width = shape.weight_bytes_per_parameter
    return Cost(
        flops=2 * tokens * inputs * outputs + tokens * bias,
        weight_bytes=width * (inputs * outputs + bias),
        activation_bytes=width * tokens * (inputs + outputs),
        launches=1,
    )


def attention_cost(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    window: int | None = None,
    dense_block: bool = False,
) -> Cost:
    """Scores and weighted sum over the cache of one layer.

    F = 4 B H hd P, P the query-key pairs: sum over i = 1..n of min(s + i, w) for a causal
    block with window w. Bytes: keys and values of the min(s, w - 1) + n slots in reach,
    once per KV head, and queries and outputs.
    """
    reach = context
    if dense_block:
        pairs = tokens * (context + tokens)
    else:
        pairs = (tokens * (2 * context + tokens + 1)) / 2
        if isinstance(tokens, int) and isinstance(context, int):
            pairs = (tokens * (2 * context + tokens + 1)) // 2
    if window is not None:
        reach = minimum(context, window - 1)
        if dense_block:
            pairs = tokens * (reach + tokens)
        else:
            # queries 1..short see their whole past, the others `window` tokens
            short = minimum(maximum(window - context, 0), tokens)
            pairs = short * context + short * (short + 1) / 2 + (tokens - short) * window
    width = shape.kv_bytes_per_element
    activation = shape.weight_bytes_per_parameter
    keys = shape.num_kv_heads * shape.head_dim
    queries = shape.num_heads * shape.head_dim
    return Cost(
        flops=4 * batch * queries * pairs,
        kv_bytes=width * 2 * batch * keys * (reach + tokens),
        activation_bytes=activation * 2 * batch * tokens * queries,
        launches=1,
    )


def _span(shape: ModelShape, layers: tuple[int, int] | None) -> tuple[int, int]:
    first, last = layers if layers is not None else (0, shape.num_layers)
    if not 0 <= first <= last <= shape.num_layers:
        raise UsageError(
            f"layers {first}:{last} do not exist",
            where=shape.name,
            remedy=f"The model has layers 0:{shape.num_layers}.",
        )
    return first, last
