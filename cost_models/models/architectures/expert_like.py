"""Families with routed experts and grouped attention."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.llama_like import every_other, one_window
from specplan.cost_models.models.architectures.shared import (
    decoder,
    gated_mlp,
    grouped_attention,
    windows,
)
from specplan.cost_models.models.layers import Decoder, DenseMlp, ExpertMlp, LayerShape, Mlp
from specplan.ir.errors import UsageError


def mixtral(config: Config) -> Decoder:
    """Mixtral (arXiv 2401.04088): the experts are the MLPs of Mistral."""
    mlp = routed(config, config.size("intermediate_size"))
    return decoder(config, grouped_attention(config), mlp, reaches=one_window(config))


def olmoe(config: Config) -> Decoder:
    """OLMoE (arXiv 2409.02060): norms over all queries and all keys."""
    plain = grouped_attention(config, config.flag("attention_bias"))
    attention = replace(plain, norm_parameters=plain.query_width + plain.key_width)
    return decoder(
        config,
        attention,
        routed(config, config.size("intermediate_size")),
        max_positions=config.size("max_position_embeddings", default=4096),
    )


def minimax_m2(config: Config) -> Decoder:
    """MiniMax-M2 (its config.json and modelling code): norms over all queries and all keys."""
    plain = grouped_attention(config)
    norms = (plain.query_width + plain.key_width) * config.flag("use_qk_norm", True)
    return decoder(
        config,
        replace(plain, norm_parameters=norms),
        routed(config, config.size("intermediate_size")),
        max_positions=config.size("max_position_embeddings", default=196_608),
    )


def phimoe(config: Config) -> Decoder:
    """Phi-3.5-MoE (arXiv 2404.14219): the experts of Mixtral, norms with biases."""
    attention = grouped_attention(config, config.flag("attention_bias"))
    norm = 2 * config.size("hidden_size")
    head_bias = config.size("vocab_size") * config.flag("lm_head_bias")
    return decoder(
        config,
        attention,
        routed(config, config.size("intermediate_size")),
        reaches=one_window(config),
        norm_parameters=norm,
        final_norm_parameters=norm + head_bias,
    )


def qwen2_moe(config: Config) -> Decoder:
    """Qwen1.5-MoE and Qwen2-57B-A14B: a gated shared expert."""
    mlp = replace(
        routed(config, config.size("moe_intermediate_size")),
        shared_intermediate_size=config.size("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    attention = grouped_attention(config, input_bias=config.flag("qkv_bias", True))
    count = config.size("num_hidden_layers")
    types = ["full_attention"] * count
    if config.flag("use_sliding_window"):
        first = config.count("max_window_layers", 28)
        kinds = every_other(config, 2)
        types = [kind if i < first else "full_attention" for i, kind in enumerate(kinds)]
    return decoder(config, attention, _sparse(config, mlp), reaches=windows(config, types))


def qwen3_moe(config: Config) -> Decoder:
    """Qwen3 with experts (arXiv 2505.09388)."""
    plain = grouped_attention(config, config.flag("attention_bias"))
    attention = replace(plain, norm_parameters=2 * plain.head_dim)
    mlps = _sparse(config, routed(config, config.size("moe_intermediate_size")))
    reaches = one_window(config) if config.flag("use_sliding_window") else None
    return decoder(config, attention, mlps, reaches=reaches)


def gpt_oss(config: Config) -> Decoder:
    """gpt-oss (arXiv 2508.10925): biased experts, attention sinks, every other layer windowed."""
    attention = grouped_attention(config, config.flag("attention_bias", True), sinks=True)
    plain = routed(config, config.size("intermediate_size"))
    mlp = replace(plain, bias=True, router_bias=True)
    return decoder(config, attention, mlp, reaches=windows(config, every_other(config, 2)))


def glm4_moe(config: Config) -> Decoder:
    """GLM-4.5 and 4.6 (arXiv 2508.06471): first layers dense, a shared expert, a drafter."""
    plain = grouped_attention(config, input_bias=config.flag("attention_bias"))
    norms = 2 * plain.head_dim * config.flag("use_qk_norm")
    attention = replace(plain, norm_parameters=norms)
    expert = routed_and_shared(config)
    longest = config.size("max_position_embeddings", default=131_072)
    base = decoder(config, attention, first_dense(config, expert), max_positions=longest)
    return with_drafter(config, base, expert)


def llama4(config: Config) -> Decoder:
    """Llama 4: some layers of experts, each with a shared one; chunks but in every fourth layer."""
    attention = grouped_attention(config, config.flag("attention_bias"))
    count, inner = config.size("num_hidden_layers"), config.size("intermediate_size")
    expert = replace(routed(config, inner), shared_intermediate_size=inner)
    dense = DenseMlp(config.size("intermediate_size_mlp"))
    step = config.size("interleave_moe_layer_step", default=1)
    sparse = config.get("moe_layers", list(range(step - 1, count, step)))
    mlps: list[Mlp] = [expert if i in sparse else dense for i in range(count)]
    base = decoder(config, attention, mlps)
    width = config.size("attention_chunk_size") if config.get("attention_chunk_size") else None
    layers = tuple(
        replace(layer, attention=replace(attention, chunk=width)) if chunked else layer
        for layer, chunked in zip(base.layers, _chunked(config, count), strict=True)
    )
    return replace(base, layers=layers)


def routed(config: Config, intermediate: int) -> ExpertMlp:
    """Routed experts by any of the keys that families use for their number.

    Raises:
        UsageError: a size is missing, or more experts are chosen than there are.
    """
    experts = config.size("num_local_experts", "num_experts", "n_routed_experts")
    active = config.size("num_experts_per_tok")
    if active > experts:
        raise UsageError(
            f"config.json sends each token to {active} of {experts} experts", where=config.where
        )
    return ExpertMlp(experts, active, intermediate)


def routed_and_shared(config: Config) -> ExpertMlp:
    """Experts of DeepSeek's kind: and `n_shared_experts` shared ones of the same width."""
    width = config.size("moe_intermediate_size")
    shared = width * config.count("n_shared_experts")
    return replace(routed(config, width), shared_intermediate_size=shared)


def first_dense(config: Config, expert: ExpertMlp) -> list[Mlp]:
    """The first `first_k_dense_replace` layers are dense, the others have experts."""
    dense = config.count("first_k_dense_replace")
    return [
        gated_mlp(config) if i < dense else expert for i in range(config.size("num_hidden_layers"))
    ]


def with_drafter(config: Config, base: Decoder, expert: ExpertMlp) -> Decoder:
    """Add the multi-token-prediction modules: each holds a layer like the last one, of experts."""
    count = config.count("num_nextn_predict_layers") or config.count("num_mtp_layers")
    last = base.layers[-1]
    layer = LayerShape(last.attention, expert, last.norm_parameters)
    return replace(base, drafter_layers=(layer,) * count)


def _sparse(config: Config, expert: ExpertMlp) -> list[Mlp]:
    """Experts in every `decoder_sparse_step`-th layer that is not among `mlp_only_layers`."""
    step = config.size("decoder_sparse_step", default=1)
    dense = config.get("mlp_only_layers", [])
    return [
        gated_mlp(config) if i in dense or (i + 1) % step else expert
        for i in range(config.size("num_hidden_layers"))
    ]


def _chunked(config: Config, count: int) -> list[bool]:
    """Whether each layer attends within chunks: those with rotary positions do."""
    types = config.per_layer("layer_types", count)
    if types is not None:
        return [kind == "chunked_attention" for kind in types]
    rotary = config.get("no_rope_layers") or [
        (i + 1) % config.size("no_rope_layer_interval", default=4) for i in range(count)
    ]
    return [bool(has) for has in rotary]
