"""Shapes made by hand, for costs that need no config."""

from __future__ import annotations

from specplan.cost_models.models.layers import Attention, LatentAttention, LayerShape, Mlp
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import WeightFormats, number_format

DEEPSEEK_LATENT = LatentAttention(128, 1536, 512, 128, 64, 128)
"""DeepSeek-V3's attention (its config.json)."""


def layered(
    attention: Attention, mlp: Mlp, *, hidden: int = 4096, layers: int = 2, dtype: str = "float16"
) -> ModelShape:
    """A model of equal layers."""
    plain = number_format(dtype)
    return ModelShape(
        architecture="made-by-hand",
        hidden_size=hidden,
        layers=(LayerShape(attention, mlp, 2 * hidden),) * layers,
        vocab_size=32000,
        max_positions=4096,
        tied_embeddings=False,
        embedding_size=hidden,
        name="layered",
        dtype=dtype,
        formats=WeightFormats.uniform(plain),
        kv_format=plain,
        parameters=0,
        digest="",
    )
