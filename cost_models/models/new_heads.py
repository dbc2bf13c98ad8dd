"""Heads that are not trained yet, as the config.json that training would start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.ir.errors import UsageError

DRAFT_VOCABULARY = 32_000
"""Tokens that a new head drafts from at most, as published EAGLE-3 heads do (SafeAILab/EAGLE)."""
_COPIED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "rms_norm_eps", "rope_theta", "torch_dtype", "dtype",
)  # fmt: skip
_NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
_CONTEXT = 2048


def eagle3_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """config.json of an EAGLE-3 head for a target: one layer of its size, a reduced vocabulary.

    Source of the form: SafeAILab/EAGLE `train/eagle3/config.json`, SpecForge
    `configs/llama3-8B-eagle3.json`.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.

    Raises:
        UsageError: the target has no such sizes.
    """
    text = target.get("text_config", target)
    missing = [name for name in _NEEDED if not isinstance(text.get(name), int)]
    if missing:
        raise UsageError(
            f"the config has no {', '.join(missing)}, from which a head takes its size",
            where=where,
            remedy="Write the config.json of the head yourself, and name its folder as --draft.",
        )
    copied = {name: text[name] for name in _COPIED if text.get(name) is not None}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "max_position_embeddings": _CONTEXT,
        "draft_vocab_size": min(DRAFT_VOCABULARY, text["vocab_size"]),
        "target_hidden_size": text["hidden_size"],
        "tie_word_embeddings": False,
        **copied,
    }
