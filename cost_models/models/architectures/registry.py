"""Which families are priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.models.architectures import (
    expert_like,
    gemma_like,
    gpt_like,
    latent_like,
    llama_like,
    state_like,
)
from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.refusals import overlooked, refusal
from specplan.cost_models.models.layers import Decoder
from specplan.ir.errors import MissingCapabilityError, UsageError

Reader = Callable[[Config], Decoder]


@dataclass(frozen=True)
class Family:
    """How the config.json of a family is read.

    Attributes:
        read: gives the structure.
        classes: names in `architectures` that are this family; others are refused, since draft
            heads and classifiers bear the same `model_type`.
    """

    read: Reader
    classes: tuple[str, ...]


def _plain(read: Reader, *stems: str) -> Family:
    return Family(read, tuple(f"{stem}ForCausalLM" for stem in stems))


def _wrapper(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}ForConditionalGeneration" for stem in stems)


FAMILIES: Mapping[str, Family] = {
    "cohere": _plain(llama_like.cohere, "Cohere"),
    "cohere2": _plain(llama_like.cohere2, "Cohere2"),
    "deepseek_v2": _plain(latent_like.deepseek, "DeepseekV2"),
    "deepseek_v3": _plain(latent_like.deepseek, "DeepseekV3"),
    "falcon": _plain(gpt_like.falcon, "Falcon"),
    "falcon_h1": _plain(state_like.falcon_h1, "FalconH1"),
    "gemma": _plain(gemma_like.gemma, "Gemma"),
    "gemma2": _plain(gemma_like.gemma2, "Gemma2"),
    "gemma3_text": _plain(gemma_like.gemma3, "Gemma3"),
    "glm4": _plain(llama_like.glm4, "Glm4"),
    "glm4_moe": _plain(expert_like.glm4_moe, "Glm4Moe"),
    "gpt2": Family(gpt_like.gpt2, ("GPT2LMHeadModel",)),
    "gpt_neox": _plain(gpt_like.gpt_neox, "GPTNeoX"),
    "gpt_oss": _plain(expert_like.gpt_oss, "GptOss"),
    "granite": _plain(llama_like.granite, "Granite"),
    "kimi_k2": _plain(latent_like.deepseek, "DeepseekV3", "KimiK2"),
    "llama": _plain(llama_like.llama, "Llama"),
    "llama4_text": _plain(expert_like.llama4, "Llama4"),
    "minimax_m2": _plain(expert_like.minimax_m2, "MiniMaxM2"),
    "mamba2": _plain(state_like.mamba2, "Mamba2"),
    "ministral": _plain(llama_like.ministral, "Ministral"),
    "ministral3": _plain(llama_like.mistral, "Ministral3"),
    "mistral": _plain(llama_like.mistral, "Mistral"),
    "mixtral": _plain(expert_like.mixtral, "Mixtral"),
    "olmo2": _plain(llama_like.olmo2, "Olmo2"),
    "olmo3": _plain(llama_like.olmo2, "Olmo3"),
    "olmoe": _plain(expert_like.olmoe, "Olmoe"),
    "opt": _plain(gpt_like.opt, "OPT"),
    "phi3": _plain(llama_like.phi3, "Phi3"),
    "phimoe": Family(expert_like.phimoe, ("PhimoeForCausalLM", "PhiMoEForCausalLM")),
    "qwen2": _plain(llama_like.qwen2, "Qwen2"),
    "qwen2_moe": _plain(expert_like.qwen2_moe, "Qwen2Moe"),
    "qwen3": _plain(llama_like.qwen3, "Qwen3"),
    "qwen3_moe": _plain(expert_like.qwen3_moe, "Qwen3Moe"),
    "qwen3_next": _plain(state_like.qwen3_next, "Qwen3Next"),
    "seed_oss": _plain(llama_like.seed_oss, "SeedOss"),
    "smollm3": _plain(llama_like.smollm3, "SmolLM3"),
    "starcoder2": _plain(gpt_like.starcoder2, "Starcoder2"),
}
"""By `model_type`."""

WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "gemma3": _wrapper("Gemma3"),
    "llama4": _wrapper("Llama4"),
    "llava": _wrapper("Llava"),
    "llava_next": _wrapper("LlavaNext"),
    "mistral3": _wrapper("Mistral3"),
    "qwen2_vl": _wrapper("Qwen2VL"),
    "qwen2_5_vl": _wrapper("Qwen2_5_VL"),
    "qwen3_vl": _wrapper("Qwen3VL"),
    "qwen3_vl_moe": _wrapper("Qwen3VLMoe"),
}
"""Models whose `text_config` is a decoder: only that part is counted and priced."""

_TEXT_FAMILIES = {
    "gemma3_text": "gemma3_text",
    "llama4_text": "llama4_text",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""`model_type` of a text_config, by the family that has its structure."""


def read_decoder(config: Mapping[str, Any], where: str) -> Decoder:
    """The structure that a config.json states.

    Args:
        config: the parsed config.json.
        where: what to name in errors, e.g. the folder.

    Raises:
        MissingCapabilityError: for architectures that are not priced; names them.
        UsageError: when a key that the family needs is missing or wrong.
    """
    outer = Config(config, where)
    try:
        inner = Config(text_config(config), where)
        family = FAMILIES.get(inner.family)
        classes = WRAPPERS.get(outer.family) or (family.classes if family else ())
        reason = refusal(outer, inner, classes)
        if family is not None and not reason:
            decoder = family.read(inner)
            reason = overlooked(inner, decoder)
            if not reason:
                return decoder
    except (TypeError, AttributeError, KeyError) as error:
        raise UsageError(
            f"config.json has a value of the wrong kind ({error})", where=where
        ) from error
    raise MissingCapabilityError(
        f"model type {outer.family!r} ({reason}) cannot be priced yet",
        where=where,
        remedy=f"Use a decoder of type {', '.join(sorted(FAMILIES))}.",
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder's part of a config, with its `model_type` as a key of `FAMILIES`.

    A decoder's own config comes back as it is; of a wrapper its `text_config`, or itself where
    the text's keys stand beside the vision's (Qwen2-VL).
    """
    kind = str(config.get("model_type", "unnamed"))
    if kind not in WRAPPERS:
        return config
    text = dict(config.get("text_config") or config)
    inner = str(text.get("model_type", "llama"))
    text["model_type"] = _TEXT_FAMILIES.get(
        inner, _TEXT_FAMILIES.get(f"{inner}_text", inner) if inner in WRAPPERS else inner
    )
    for key in ("tie_word_embeddings", "quantization_config"):
        if config.get(key) is not None:
            text.setdefault(key, config[key])
    return text
