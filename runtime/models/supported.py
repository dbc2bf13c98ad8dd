"""Which model types run, and by which family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.refusals import RECURRENT_FAMILIES, recurrent_state
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.families import Family, Gpt2Family, OptFamily, RotaryFamily
from specplan.runtime.models.recurrent.delta import Qwen3NextFamily
from specplan.runtime.models.recurrent.mamba import FalconH1Family, Mamba2Family

FAMILIES: dict[str, Callable[[Any], Family]] = {
    "falcon_h1": FalconH1Family,
    "gpt2": Gpt2Family,
    "llama": RotaryFamily,
    "mamba2": Mamba2Family,
    "mistral": RotaryFamily,
    "opt": OptFamily,
    "qwen2": RotaryFamily,
    "qwen3": RotaryFamily,
    "qwen3_next": Qwen3NextFamily,
}

LEARNED_POSITIONS = frozenset({"gpt2", "opt"})
"""Families whose position table ends; positions beyond it would index out of range."""

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
    recurrent = recurrent_state(Config(config, where))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_kind = str(rope.get("rope_type", rope.get("type", "default")))
    problem = ""
    if config.get("is_encoder_decoder") or config.get("add_cross_attention"):
        problem = f"model type {kind!r} is an encoder-decoder; only decoders run"
    elif recurrent and kind not in RECURRENT_FAMILIES:
        problem = (
            f"model type {kind!r} has recurrent state ({recurrent}) of a form that is not known"
        )
    elif kind not in FAMILIES:
        problem = f"model type {kind!r} is not supported"
    elif config.get("quantization_config"):
        problem = "quantised checkpoints are not supported"
    elif rope_kind not in STATIC_ROPE:
        problem = f"rotary scaling {rope_kind!r} makes keys depend on the text's later length"
        remedy = f"Supported scalings: {', '.join(sorted(STATIC_ROPE))}."
    if problem:
        raise MissingCapabilityError(problem, where=where, remedy=remedy)
