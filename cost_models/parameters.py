"""Exact parameter counts of a model, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specplan.cost_models.model_shape import ModelShape


def parameter_inventory(shape: ModelShape) -> dict[str, int]:
    """Parameters by part; the sum equals the sum over a checkpoint's safetensors headers.

    Returns:
        Counts for `embedding`, `positions`, `projections` (between embedding and hidden
        width), `attention`, `mlp`, `biases`, `norms` and `head` (0 when tied).
    """
    hidden, layers = shape.hidden_size, shape.num_layers
    queries = shape.num_heads * shape.head_dim
    keys = shape.num_kv_heads * shape.head_dim
    mlp_inputs = 2 if shape.gated_mlp else 1
    norms_per_layer = 2 * shape.parameters_per_norm
    if shape.query_key_norm:
        norms_per_layer += 2 * shape.head_dim
    projections = 0
    if shape.embedding_size != hidden:
        projections = 2 * hidden * shape.embedding_size
    head = 0 if shape.tied_embeddings else shape.vocab_size * shape.embedding_size
    return {
        "embedding": shape.vocab_size * shape.embedding_size,
        "positions": shape.learned_positions * hidden,
        "projections": projections,
        "attention": layers * hidden * (2 * queries + 2 * keys),
        "mlp": layers * (mlp_inputs + 1) * hidden * shape.intermediate_size,
        "biases": layers * sum(layer_biases(shape).values()),
        "norms": layers * norms_per_layer + shape.parameters_per_norm * shape.final_norm,
        "head": head,
    }


def layer_biases(shape: ModelShape) -> dict[str, int]:
    """Bias parameters of one layer, by the linear op that adds them."""
    queries = shape.num_heads * shape.head_dim
    keys = shape.num_kv_heads * shape.head_dim
    mlp_inputs = 2 if shape.gated_mlp else 1
    return {
        "query_key_value": (queries + 2 * keys) * shape.query_key_value_bias,
        "attention_output": shape.hidden_size * shape.output_bias,
        "mlp_up": mlp_inputs * shape.intermediate_size * shape.mlp_bias,
        "mlp_down": shape.hidden_size * shape.mlp_bias,
    }
