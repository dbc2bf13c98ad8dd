"""Families whose layers have a recurrent state: Mamba-2, Falcon-H1, Qwen3-Next."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.expert_like import qwen3_moe
from specplan.cost_models.models.architectures.shared import decoder, gated_mlp, grouped_attention
from specplan.cost_models.models.layers import (
    Decoder,
    DenseMlp,
    GroupedAttention,
    LayerShape,
    StateMixer,
)
from specplan.ir.errors import UsageError

_UNBOUNDED = 1 << 40
"""Longest text of a model that no position ends, as the runtime takes it."""
_STEPS = {"rates": 1, "operations": 5, "own_parameters": 3}
"""Of Mamba-2: a step size per head; its bias, a decay and a skip (arXiv 2405.21060)."""


def mamba2(config: Config) -> Decoder:
    """Mamba-2 (arXiv 2405.21060): mixers alone, one norm before each."""
    bias = config.flag("use_bias")
    mixer = _sized(
        config,
        StateMixer(
            heads=config.size("num_heads", default=128),
            head_dim=config.size("head_dim", default=64),
            state_size=config.size("state_size", default=128),
            groups=config.size("n_groups", default=8),
            taps=config.size("conv_kernel", default=4),
            input_bias=bias,
            output_bias=bias,
            convolution_bias=config.flag("use_conv_bias", True),
            **_STEPS,
        ),
    )
    hidden = config.size("hidden_size")
    layer = LayerShape(None, DenseMlp(0), hidden, replace(mixer, norm_parameters=mixer.value_width))
    return Decoder(
        architecture=config.family,
        hidden_size=hidden,
        layers=(layer,) * config.size("num_hidden_layers"),
        vocab_size=config.size("vocab_size"),
        max_positions=_UNBOUNDED,
        tied_embeddings=config.flag("tie_word_embeddings"),
        embedding_size=hidden,
        final_norm_parameters=hidden,
    )


def falcon_h1(config: Config) -> Decoder:
    """Falcon-H1 (arXiv 2507.22448): in every layer a mixer beside attention, then an MLP."""
    heads = config.size("mamba_n_heads")
    hidden, stated = config.size("hidden_size"), config.get("mamba_d_ssm")
    width = config.size("mamba_expand", default=2) * hidden if stated is None else int(stated)
    mixer = _sized(
        config,
        StateMixer(
            heads=heads,
            head_dim=width // heads,
            state_size=config.size("mamba_d_state"),
            groups=config.size("mamba_n_groups", default=1),
            taps=config.size("mamba_d_conv", default=4),
            norm_parameters=width * config.flag("mamba_rms_norm"),
            input_bias=config.flag("mamba_proj_bias"),
            output_bias=config.flag("projectors_bias"),
            convolution_bias=config.flag("mamba_conv_bias", True),
            **_STEPS,
        ),
    )
    attention = grouped_attention(config, config.flag("attention_bias"))
    base = decoder(config, attention, gated_mlp(config, config.flag("mlp_bias")))
    return replace(base, layers=tuple(replace(layer, mixer=mixer) for layer in base.layers))


def qwen3_next(config: Config) -> Decoder:
    """Qwen3-Next (its model card): three gated delta nets (arXiv 2412.06464), then gated attention.

    Every layer has experts, one of them shared and gated.
    """
    values = config.size("linear_num_value_heads", default=32)
    width = config.size("linear_value_head_dim", default=128)
    mixer = _sized(
        config,
        StateMixer(
            heads=values,
            head_dim=width,
            state_size=config.size("linear_key_head_dim", default=128),
            groups=config.size("linear_num_key_heads", default=16),
            taps=config.size("linear_conv_kernel_dim", default=4),
            rates=2,
            operations=7,
            own_parameters=2,
            norm_parameters=width,
        ),
    )
    count, every = (
        config.size("num_hidden_layers"),
        config.size("full_attention_interval", default=4),
    )
    types = config.per_layer("layer_types", count) or tuple(
        "linear_attention" if (i + 1) % every else "full_attention" for i in range(count)
    )
    base = qwen3_moe(Config({"head_dim": 256, **config.values, "layer_types": None}, config.where))
    shared = config.size("shared_expert_intermediate_size", default=512)
    layers = []
    for layer, kind in zip(base.layers, types, strict=True):
        assert isinstance(layer.attention, GroupedAttention)
        mlp = layer.mlp
        if not isinstance(mlp, DenseMlp):
            mlp = replace(mlp, shared_intermediate_size=shared, shared_gate=True)
        recurrent = kind == "linear_attention"
        attention = None if recurrent else replace(layer.attention, output_gate=True)
        layers.append(
            replace(layer, attention=attention, mlp=mlp, mixer=mixer if recurrent else None)
        )
    return replace(base, layers=tuple(layers))


def _sized(config: Config, mixer: StateMixer) -> StateMixer:
    """The mixer, whose heads fill its groups.

    Raises:
        UsageError: they do not.
    """
    if mixer.heads % mixer.groups:
        raise UsageError(
            f"{mixer.heads} heads of a state do not fill {mixer.groups} groups", where=config.where
        )
    return mixer
