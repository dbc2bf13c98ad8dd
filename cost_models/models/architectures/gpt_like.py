"""Families of GPT's kind: layer norms with biases, plain MLPs."""

from __future__ import annotations

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.llama_like import one_window
from specplan.cost_models.models.architectures.shared import decoder, grouped_attention
from specplan.cost_models.models.layers import Decoder, DenseMlp, GroupedAttention, LayerShape


def gpt2(config: Config) -> Decoder:
    """GPT-2: learned positions."""
    width, heads = config.size("n_embd"), config.size("n_head")
    positions = config.size("n_positions")
    attention = GroupedAttention(heads, heads, width // heads, input_bias=True, output_bias=True)
    mlp = DenseMlp(config.size("n_inner", default=4 * width), gated=False, bias=True)
    return Decoder(
        architecture=config.family,
        hidden_size=width,
        layers=(LayerShape(attention, mlp, 4 * width),) * config.size("n_layer"),
        vocab_size=config.size("vocab_size"),
        max_positions=positions,
        tied_embeddings=config.flag("tie_word_embeddings", True),
        embedding_size=width,
        learned_positions=positions,
        final_norm_parameters=2 * width,
    )


def opt(config: Config) -> Decoder:
    """OPT (arXiv 2205.01068): learned positions; OPT-350M has a narrower embedding."""
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = config.flag("enable_bias", True)
    norm = 2 * width * config.flag("layer_norm_elementwise_affine", True)
    ends = config.flag("do_layer_norm_before", True) and not config.flag("_remove_final_layer_norm")
    embedding = config.size("word_embed_proj_dim", default=width)
    positions = config.size("max_position_embeddings")
    attention = GroupedAttention(heads, heads, width // heads, input_bias=bias, output_bias=bias)
    mlp = DenseMlp(config.size("ffn_dim"), gated=False, bias=bias)
    return Decoder(
        architecture=config.family,
        hidden_size=width,
        layers=(LayerShape(attention, mlp, 2 * norm),) * config.size("num_hidden_layers"),
        vocab_size=config.size("vocab_size"),
        max_positions=positions,
        tied_embeddings=config.flag("tie_word_embeddings", True),
        embedding_size=embedding,
        # the table has two more rows than positions (OPTLearnedPositionalEmbedding.offset)
        learned_positions=positions + 2,
        final_norm_parameters=norm * ends,
        entry_width=None if embedding == width else embedding,
        exit_width=None if embedding == width else embedding,
    )


def gpt_neox(config: Config) -> Decoder:
    """GPT-NeoX and Pythia (arXiv 2204.06745)."""
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = config.flag("attention_bias", True)
    attention = GroupedAttention(heads, heads, width // heads, input_bias=bias, output_bias=bias)
    mlp = DenseMlp(config.size("intermediate_size"), gated=False, bias=True)
    return decoder(config, attention, mlp, norm_parameters=2 * width)


def starcoder2(config: Config) -> Decoder:
    """StarCoder2 (arXiv 2402.19173): grouped queries, one window for all layers."""
    bias = config.flag("use_bias", True)
    attention = grouped_attention(config, bias)
    mlp = DenseMlp(config.size("intermediate_size"), gated=False, bias=bias)
    norm = 2 * config.size("hidden_size")
    reaches = one_window(config)
    return decoder(config, attention, mlp, reaches=reaches, norm_parameters=norm, tied=True)


def falcon(config: Config) -> Decoder:
    """Falcon (arXiv 2311.16867): one KV head, or groups in the new architecture."""
    width = config.size("hidden_size")
    heads = config.size("num_attention_heads", "n_head")
    grouped, bias = config.flag("new_decoder_architecture"), config.flag("bias")
    kv_heads = heads
    if grouped:
        kv_heads = config.size("num_kv_heads", "n_head_kv", default=heads)
    elif config.flag("multi_query", True):
        kv_heads = 1
    norms = 2
    if config.flag("parallel_attn", True):
        norms = config.size("num_ln_in_parallel_attn", default=2 if grouped else 1)
    layer = LayerShape(
        GroupedAttention(heads, kv_heads, width // heads, input_bias=bias, output_bias=bias),
        DenseMlp(config.size("ffn_hidden_size", default=4 * width), gated=False, bias=bias),
        norms * 2 * width,
    )
    return Decoder(
        architecture=config.family,
        hidden_size=width,
        layers=(layer,) * config.size("num_hidden_layers", "n_layer"),
        vocab_size=config.size("vocab_size"),
        max_positions=config.size("max_position_embeddings", default=2048),
        tied_embeddings=config.flag("tie_word_embeddings", True),
        embedding_size=width,
        final_norm_parameters=2 * width,
    )
