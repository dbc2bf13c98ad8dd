"""Which families are priced, and the refusal of all others by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.architectures import gpt_like, llama_like
from specplan.cost_models.architectures.config import Config
from specplan.cost_models.layers import Decoder
from specplan.ir.errors import MissingCapabilityError, UsageError


@dataclass(frozen=True)
class Family:
    """How the config.json of a family is read.

    Attributes:
        read: gives the structure.
        classes: names in `architectures` that are this family; others are refused, since draft
            heads and classifiers bear the same `model_type`.
    """

    read: Callable[[Config], Decoder]
    classes: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "llama": Family(llama_like.llama, ("LlamaForCausalLM",)),
    "mistral": Family(llama_like.mistral, ("MistralForCausalLM",)),
    "qwen2": Family(llama_like.qwen2, ("Qwen2ForCausalLM",)),
    "qwen3": Family(llama_like.qwen3, ("Qwen3ForCausalLM",)),
    "gpt2": Family(gpt_like.gpt2, ("GPT2LMHeadModel",)),
    "opt": Family(gpt_like.opt, ("OPTForCausalLM",)),
}
"""By `model_type`."""

_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_STATE_KEYS = ("ssm_state_size", "state_size", "linear_num_value_heads", "layers_block_type")


def read_decoder(config: Mapping[str, Any], where: str) -> Decoder:
    """The structure that a config.json states.

    Args:
        config: the parsed config.json.
        where: what to name in errors, e.g. the folder.

    Raises:
        MissingCapabilityError: for architectures that are not priced; names them.
        UsageError: when a key that the family needs is missing or wrong.
    """
    keys = Config(config, where)
    reason = _refusal(keys)
    if reason:
        raise MissingCapabilityError(
            f"model type {keys.family!r} ({reason}) cannot be priced yet",
            where=where,
            remedy=f"Use a decoder of type {', '.join(sorted(FAMILIES))}.",
        )
    try:
        return FAMILIES[keys.family].read(keys)
    except (TypeError, AttributeError) as error:
        raise UsageError(
            f"config.json has a value of the wrong kind ({error})", where=where
        ) from error


def _refusal(config: Config) -> str:
    inner = Config({**config.values, **config.get("text_config", {})}, config.where)
    classes = list(config.get("architectures", []))
    if any(inner.get(key, 0) > 1 for key in _EXPERT_KEYS):
        reason = "a mixture of experts"
        if inner.get("kv_lora_rank"):
            reason += " with latent attention (MLA)"
        return reason
    if inner.get("kv_lora_rank"):
        return "latent attention (MLA)"
    if any(inner.get(key) for key in _STATE_KEYS) or "linear_attention" in (
        inner.get("layer_types", [])
    ):
        return "recurrent state"
    if config.get("quantization_config"):
        method = config.values["quantization_config"].get("quant_method", "unnamed")
        return f"quantised weights ({method})"
    family = FAMILIES.get(config.family)
    if family is None:
        return "an unknown architecture"
    if classes and not set(classes) & set(family.classes):
        return f"class {classes[0]}"
    return ""
