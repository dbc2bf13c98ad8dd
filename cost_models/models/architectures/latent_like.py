"""Families with latent attention: DeepSeek-V2, V3, R1 and Kimi K2."""

from __future__ import annotations

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.expert_like import (
    first_dense,
    routed_and_shared,
    with_drafter,
)
from specplan.cost_models.models.architectures.shared import decoder
from specplan.cost_models.models.layers import Decoder, LatentAttention
from specplan.ir.errors import MissingCapabilityError


def deepseek(config: Config) -> Decoder:
    """DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437); Kimi K2 is V3 with other sizes.

    Raises:
        MissingCapabilityError: experts are not in every layer after the dense ones.
    """
    if config.get("moe_layer_freq", 1) != 1:
        raise MissingCapabilityError(
            f"model type {config.family!r} with moe_layer_freq other than 1 cannot be priced yet",
            where=config.where,
        )
    attention = LatentAttention(
        num_heads=config.size("num_attention_heads"),
        query_rank=config.size("q_lora_rank") if config.get("q_lora_rank") else None,
        kv_rank=config.size("kv_lora_rank"),
        nope_dim=config.size("qk_nope_head_dim"),
        rope_dim=config.size("qk_rope_head_dim"),
        value_dim=config.size("v_head_dim"),
        bias=config.flag("attention_bias"),
    )
    expert = routed_and_shared(config)
    base = decoder(config, attention, first_dense(config, expert))
    if config.family == "deepseek_v2":
        return base
    return with_drafter(config, base, expert)
