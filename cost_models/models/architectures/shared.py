"""What most families have in common: canonical keys, grouped attention, gated MLPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.layers import (
    Attention,
    Decoder,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    LayerShape,
    Mlp,
)
from specplan.ir.errors import MissingCapabilityError, UsageError


def grouped_attention(
    config: Config, bias: bool = False, head_dim: int | None = None, **options: Any
) -> GroupedAttention:
    """Attention by the canonical keys; `head_dim` may be given where a family has its own.

    Args:
        config: of the model.
        bias: on queries, keys, values and outputs.
        head_dim: width of a head; None for the config's, or an even part of the hidden size.
        options: further attributes.

    Raises:
        UsageError: a size is missing or wrong.
    """
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    head_dim = head_dim or config.get("head_dim")
    if head_dim is None:
        head_dim = config.size("hidden_size") // heads
    if heads % kv_heads:
        raise UsageError(
            "the number of heads is no multiple of the number of KV heads", where=config.where
        )
    both = {"input_bias": bias, "output_bias": bias}
    return GroupedAttention(heads, kv_heads, head_dim, **both | options)


def gated_mlp(config: Config, bias: bool = False) -> DenseMlp:
    """The gated MLP by the canonical keys."""
    return DenseMlp(config.size("intermediate_size"), gated=True, bias=bias)


def windows(config: Config, layer_types: Sequence[str] | None = None) -> tuple[int | None, ...]:
    """Sliding windows by `layer_types`; full attention where there are none.

    Args:
        config: its `sliding_window` is the width.
        layer_types: per layer; default the config's own, or full attention everywhere.

    Raises:
        MissingCapabilityError: a layer is of a type that is not priced.
        UsageError: the list does not fit the layers, or there is no width.
    """
    count = config.size("num_hidden_layers")
    types = config.per_layer("layer_types", count) or layer_types or ("full_attention",) * count
    unknown = sorted({str(kind) for kind in types} - {"full_attention", "sliding_attention"})
    if unknown:
        raise MissingCapabilityError(
            f"model type {config.family!r} has layers of type {', '.join(unknown)}, "
            "which cannot be priced yet",
            where=config.where,
        )
    if "sliding_attention" not in types:
        return (None,) * count
    width = config.size("sliding_window")
    return tuple(width if kind == "sliding_attention" else None for kind in types)


def decoder(
    config: Config,
    attention: Attention,
    mlp: Mlp | Sequence[Mlp],
    *,
    reaches: Sequence[int | None] | None = None,
    norms: int = 2,
    norm_parameters: int | None = None,
    tied: bool = False,
    **options: Any,
) -> Decoder:
    """A decoder by the canonical keys.

    Args:
        config: the config.
        attention: of every layer, apart from windows.
        mlp: of every layer, or one per layer.
        reaches: sliding windows, one per layer; default none.
        norms: norms per layer.
        norm_parameters: parameters of one norm; default the hidden size (RMS norm).
        tied: whether the family ties embedding and head where the config does not say.
        options: further fields of `Decoder`.
    """
    hidden = config.size("hidden_size")
    count = config.size("num_hidden_layers")
    each = hidden if norm_parameters is None else norm_parameters
    mlps = mlp if isinstance(mlp, Sequence) else (mlp,) * count
    layers = tuple(
        LayerShape(_windowed(attention, window), layer_mlp, norms * each)
        for window, layer_mlp in zip(reaches or (None,) * count, mlps, strict=True)
    )
    fields: dict[str, Any] = {
        "architecture": config.family,
        "hidden_size": hidden,
        "layers": layers,
        "vocab_size": config.size("vocab_size"),
        "max_positions": options.get("max_positions") or config.size("max_position_embeddings"),
        "tied_embeddings": config.flag("tie_word_embeddings", tied),
        "embedding_size": hidden,
        "final_norm_parameters": each,
        "drafter_layers": layers[-1:] * config.count("num_nextn_predict_layers"),
    }
    return Decoder(**(fields | options))


def _windowed(attention: Attention, window: int | None) -> Attention:
    if window is None or isinstance(attention, LatentAttention):
        return attention
    return replace(attention, window=window)
