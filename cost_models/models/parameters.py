"""Exact parameter counts of a model, part by part."""

from __future__ import annotations

from collections import Counter

from specplan.cost_models.models.layers import (
    Attention,
    Decoder,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    LayerShape,
    Mlp,
    StateMixer,
)

PARTS = (
    "embedding",
    "positions",
    "projections",
    "attention",
    "states",
    "mlp",
    "shared_experts",
    "experts",
    "router",
    "biases",
    "norms",
    "head",
)
"""The parts of an inventory."""


def parameter_inventory(decoder: Decoder, active: bool = False) -> dict[str, int]:
    """Parameters by part; the sum equals the sum over a checkpoint's safetensors headers.

    Args:
        decoder: the model; its drafter layers are not counted.
        active: count of the routed experts only those that one token passes.

    Returns:
        Counts for all of `PARTS`: `projections` lie between the layers and another width,
        `states` are convolutions and decays of mixers (whose matrices count as attention's),
        `head` is 0 when tied.
    """
    counts: Counter[str] = Counter()
    for layer, times in Counter(decoder.layers).items():
        for part, count in layer_inventory(layer, decoder.hidden_size, active).items():
            counts[part] += times * count
    table = decoder.vocab_size * decoder.embedding_size
    counts["embedding"] = table * decoder.owns_embedding
    counts["head"] = table * (decoder.owns_head and not decoder.tied_embeddings)
    counts["positions"] = decoder.learned_positions * decoder.hidden_size
    counts["norms"] += decoder.final_norm_parameters
    entering = decoder.entry_width, decoder.feature_width, decoder.step_width
    for width in (*entering, decoder.exit_width):
        counts["projections"] += decoder.hidden_size * (width or 0)
    return {part: counts[part] for part in PARTS}


def layer_inventory(layer: LayerShape, hidden: int, active: bool = False) -> dict[str, int]:
    """Parameters of one layer by part; see `parameter_inventory`."""
    counts = Counter(_mlp(layer.mlp, hidden, active))
    counts["norms"] = layer.norm_parameters
    if layer.attention is not None:
        counts["attention"] = attention_parameters(layer.attention, hidden)
        counts["norms"] += _attention_norms(layer.attention)
        counts["biases"] += sum(attention_biases(layer.attention, hidden).values())
    if layer.mixer is not None:
        counts.update(_mixer(layer.mixer, hidden))
    return dict(counts)


def _mixer(mixer: StateMixer, hidden: int) -> dict[str, int]:
    return {
        "attention": hidden * (mixer.input_width + mixer.value_width),
        "states": mixer.parameters,
        "norms": mixer.norm_parameters,
        "biases": mixer.input_width * mixer.input_bias
        + hidden * mixer.output_bias
        + mixer.channels * mixer.convolution_bias,
    }


def attention_parameters(attention: Attention, hidden: int) -> int:
    """Parameters of attention's matrices."""
    if isinstance(attention, GroupedAttention):
        inputs = attention.input_width or hidden
        return inputs * attention.projected_width + attention.query_width * hidden
    queries = hidden * attention.query_width
    if attention.query_rank is not None:
        queries = attention.query_rank * (hidden + attention.query_width)
    latent = hidden * (attention.kv_rank + attention.rope_dim)
    expansion = attention.kv_rank * attention.expanded_width
    return queries + latent + expansion + attention.value_width * hidden


def attention_biases(attention: Attention, hidden: int) -> dict[str, int]:
    """Bias parameters of attention, by the op that adds them."""
    if isinstance(attention, LatentAttention):
        down = (attention.query_rank or 0) + attention.kv_rank + attention.rope_dim
        return {
            "latent_down": down * attention.bias,
            "attention_output": hidden * attention.bias,
        }
    return {
        "query_key_value": attention.projected_width * attention.input_bias,
        "attention_output": hidden * attention.output_bias,
        "attention": attention.num_heads * attention.sinks,
    }


def _attention_norms(attention: Attention) -> int:
    if isinstance(attention, GroupedAttention):
        return attention.norm_parameters
    return attention.kv_rank + (attention.query_rank or 0)


def _mlp(mlp: Mlp, hidden: int, active: bool) -> dict[str, int]:
    if isinstance(mlp, DenseMlp):
        return {
            "mlp": _matrices(mlp, hidden),
            "biases": (mlp.up_width + hidden) * mlp.bias,
        }
    counted = mlp.active_experts if active else mlp.num_experts
    gate = hidden * mlp.shared_gate
    return {
        "experts": counted * _matrices(mlp, hidden),
        "shared_experts": _matrices(mlp.shared, hidden) if mlp.shared else 0,
        "router": hidden * mlp.num_experts + gate,
        "biases": counted * (mlp.up_width + hidden) * mlp.bias + mlp.num_experts * mlp.router_bias,
    }


def _matrices(mlp: DenseMlp | ExpertMlp, hidden: int) -> int:
    return hidden * (mlp.up_width + mlp.intermediate_size)
