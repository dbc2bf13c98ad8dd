"""What several formats of heads have in common: layer numbers, layer configs, names of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from specplan.cost_models.models.architectures.config import Config
from specplan.ir.errors import MissingCapabilityError, UsageError


class Sizes(Protocol):
    """What a head depends on of its target: a `Decoder`, or a loaded model."""

    @property
    def num_layers(self) -> int:
        """Its transformer layers."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of its hidden states."""
        ...

    @property
    def vocab_size(self) -> int:
        """Entries of its logits."""
        ...


KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""Types of transformer layers that heads are built of."""
_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
_LAYER_KEYS = (
    "attention_bias", "head_dim", "hidden_act", "hidden_size", "intermediate_size", "layer_types",
    "max_position_embeddings", "max_window_layers", "mlp_bias", "num_attention_heads",
    "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_parameters", "rope_scaling",
    "rope_theta", "sliding_window", "use_sliding_window",
)  # fmt: skip
LAYER_NAMES = (
    (r"layers\.(\d+)\.(self_attn\.[qkvo]_proj\.(?:weight|bias)|self_attn\.[qk]_norm\.weight)",
     r"layers.\1.\2"),
    (r"layers\.(\d+)\.(mlp\.(?:gate|up|down)_proj\.(?:weight|bias))", r"layers.\1.\2"),
    (r"layers\.(\d+)\.((?:input|post_attention)_layernorm\.weight)", r"layers.\1.\2"),
)  # fmt: skip
"""Tensors of transformer layers: the names of `transformers`."""


def one_layer(prefix: str) -> tuple[tuple[str, str], ...]:
    """The same names of a head's only layer, behind another prefix (a pattern)."""
    return tuple(
        (name.replace(r"layers\.(\d+)\.", prefix), into.replace(r"\1", "0").replace(r"\2", r"\1"))
        for name, into in LAYER_NAMES
    )


def layer_config(config: Config, layers: int | None = None) -> dict[str, Any]:
    """The keys that say what transformer layers are, of a head's or a target's config.json.

    Args:
        config: of the head, or of the target whose layers it repeats.
        layers: how many it has; None for as many as the config says.

    Raises:
        MissingCapabilityError: layers or a rotary scaling that no head is built of.
    """
    kind = config.family if config.family in KINDS else "llama"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = str(rope.get("rope_type", rope.get("type", "default")))
    if scaling not in _ROPE:
        raise refused(f"rotary scaling {scaling!r}", config.where)
    if config.get("partial_rotary_factor", 1.0) != 1.0 or rope.get("mrope_section"):
        raise refused("rotary positions on a part of each head", config.where)
    if config.get("n_routed_experts") or config.get("num_experts") or config.get("kv_lora_rank"):
        raise refused("experts or latent attention", config.where)
    inner = {key: config.values[key] for key in _LAYER_KEYS if config.get(key) is not None}
    return {**inner, "model_type": kind} | ({} if layers is None else {"num_hidden_layers": layers})


def attention_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Widths of queries, keys and values side by side, and of queries, of such layers."""
    width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    size = int(config.get("head_dim", width // heads))
    return (heads + 2 * int(config.get("num_key_value_heads", heads))) * size, heads * size


def numbers(config: Config, key: str) -> tuple[int, ...] | None:
    """A list of layer numbers; None where there is none.

    Raises:
        UsageError: it is something else.
    """
    given = config.get(key)
    if given is None:
        return None
    if not isinstance(given, list) or not all(type(n) is int for n in given) or not given:
        raise UsageError(f"config.json: {key} is no list of layers", where=config.where)
    return tuple(given)


def check_layers(layers: tuple[int, ...], target: Sizes, where: str) -> None:
    """Refuse states that a target has not, or that engines take from different places.

    Raises:
        UsageError: there are fewer layers.
        MissingCapabilityError: it is the last one among several.
    """
    last, count = max(layers), target.num_layers
    if last > count:
        raise UsageError(
            f"it reads the target's layer {last}, and there are {count}",
            where=where,
            remedy="Take the drafter that was trained for this target.",
        )
    if last == count:
        raise MissingCapabilityError(
            f"it reads the state after the target's last layer ({count}), which `transformers` "
            "gives after the final norm and engines before it",
            where=where,
            remedy="Train it on states of earlier layers.",
        )


def inner_config(config: Config) -> Config:
    """The sizes of a config.json of `speculators`, or the config itself."""
    inner: Mapping[str, Any] = config.get("transformer_layer_config") or config.values
    return Config(inner, config.where)


def refused(what: str, where: str) -> MissingCapabilityError:
    """The error of a form of a head that nothing here runs."""
    return MissingCapabilityError(
        f"heads with {what} cannot be run yet",
        where=where,
        remedy="Use another head, or plan for an engine that runs it.",
    )
