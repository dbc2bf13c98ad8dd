"""Which checkpoints can be run exactly, told from their config.json."""

from __future__ import annotations

from typing import Any

from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.families import FAMILIES

RECURRENT_WORDS = ("mamba", "ssm", "rwkv", "recurrent", "retnet", "jamba", "zamba", "linear")
"""Parts of `model_type`, `layer_types` or `layers_block_type` that mean recurrent state."""

STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
"""Rotary scalings in which a key does not depend on how long the text later becomes."""


def check_supported(config: dict[str, Any], where: str) -> None:
    """Refuse by name what the runtime cannot run exactly.

    Args:
        config: the parsed config.json.
        where: the folder, for the message.

    Raises:
        MissingCapabilityError: names the architecture and what is supported.
    """
    kind = str(config.get("model_type", "missing"))
    remedy = f"Supported model types: {', '.join(sorted(FAMILIES))}."
    layer_kinds = [*(config.get("layer_types") or []), *(config.get("layers_block_type") or [])]
    named = [kind, *map(str, layer_kinds), *map(str, config.get("architectures") or [])]
    recurrent = [name for name in named if any(word in name.lower() for word in RECURRENT_WORDS)]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_kind = str(rope.get("rope_type", rope.get("type", "default")))
    problem = ""
    if config.get("is_encoder_decoder") or config.get("add_cross_attention"):
        problem = f"model type {kind!r} is an encoder-decoder; only decoders run"
    elif recurrent or "ssm_cfg" in config or kind in ("qwen3_next", "bamba", "falcon_h1"):
        found = recurrent[0] if recurrent else kind
        problem = f"model type {kind!r} keeps recurrent state ({found}), which drafts cannot rewind"
    elif kind not in FAMILIES:
        problem = f"model type {kind!r} is not supported"
    elif config.get("quantization_config"):
        problem = "quantised checkpoints are not supported"
    elif rope_kind not in STATIC_ROPE:
        problem = f"rotary scaling {rope_kind!r} makes keys depend on the text's later length"
        remedy = f"Supported scalings: {', '.join(sorted(STATIC_ROPE))}."
    if problem:
        raise MissingCapabilityError(problem, where=where, remedy=remedy)
