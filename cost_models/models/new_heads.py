"""Heads that are not trained yet, as the config.json that training would start from.

Each is in the form that engines and public trainers read, in the size of the published ones unless
another is asked for.
"""

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
_HALVED = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
_CONTEXT = 2048


def eagle3_config(
    target: Mapping[str, Any],
    where: str,
    *,
    layers: int = 1,
    halves: int = 0,
    vocabulary: int | None = None,
) -> dict[str, Any]:
    """config.json of an EAGLE-3 head for a target: by default one layer of the target's size.

    Source of the form: SafeAILab/EAGLE `train/eagle3/config.json`, SpecForge
    `configs/llama3-8B-eagle3.json`.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        layers: transformer layers.
        halves: how often the target's hidden size, MLP and number of heads are halved.
        vocabulary: tokens that it drafts from; None for `DRAFT_VOCABULARY`, or all there are.

    Raises:
        UsageError: the target has no such sizes, or they cannot be halved.
    """
    sizes = _sizes(target, where)
    hidden, entries = sizes["hidden_size"], sizes["vocab_size"]
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "max_position_embeddings": _CONTEXT,
        "draft_vocab_size": min(vocabulary or DRAFT_VOCABULARY, entries),
        "target_hidden_size": hidden,
        "tie_word_embeddings": False,
        **sizes,
        **{name: _halved(sizes[name], halves, name, where) for name in _HALVED if name in sizes},
    }


def dflash_config(
    target: Mapping[str, Any], where: str, *, layers: int = 5, block: int = 16
) -> dict[str, Any]:
    """config.json of a DFlash block drafter for a target, of the target's width.

    Source of the form and the default sizes: z-lab/Qwen3-8B-DFlash-b16 and `model/dflash.py`.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        layers: transformer layers.
        block: tokens of a block, the one that was accepted last among them.

    Raises:
        UsageError: the target has no such sizes.
    """
    sizes = _sizes(target, where)
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "max_position_embeddings": _CONTEXT,
        "tie_word_embeddings": False,
        "block_size": block,
        "dflash_config": {"mask_token_id": sizes["vocab_size"] - 1},  # a padding row as a rule
        **sizes,
    }


def eagle_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """config.json of an EAGLE-1 head for a target: one layer of its size, the target's own LM head.

    Source of the form: SafeAILab/EAGLE `model/cnets1.py`, vLLM `llama_eagle.py`.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.

    Raises:
        UsageError: the target has no such sizes.
    """
    return {
        "architectures": ["EagleLlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        **layered_config(target, where),
    }


def kangaroo_config(
    target: Mapping[str, Any], where: str, *, exit_layer: int | None = None, mlp: bool = False
) -> dict[str, Any]:
    """config.json of an adapter on a target's first layers, whose own LM head follows.

    Source of the form: Equationliu/Kangaroo `kangaroo/adapter.py`, which has no MLP; EESD's exit
    layer (arXiv 2406.03853) is a whole layer.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        exit_layer: layers below it; None for a sixteenth, as Kangaroo's 2 of 32.
        mlp: the adapter is a whole layer.

    Raises:
        UsageError: the target has no such sizes.
    """
    layers = int(target.get("text_config", target)["num_hidden_layers"])
    return {
        "model_type": "kangaroo",
        "exit_layer": max(1, round(layers / 16)) if exit_layer is None else exit_layer,
        "exit_mlp": mlp,
        "num_hidden_layers": 1,
        **layered_config(target, where),
    }


def medusa_config(
    target: Mapping[str, Any], where: str, *, heads: int = 4, layers: int = 1
) -> dict[str, Any]:
    """config.json of Medusa heads for a target, each with an LM head of its own.

    Source of the form: vLLM `configs/medusa.py` and `medusa.py`.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        heads: tokens ahead.
        layers: residual blocks of a head.

    Raises:
        UsageError: the target has no such sizes.
    """
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "num_heads": heads,
        "num_hidden_layers": layers,
        "medusa_fc_bias": True,
        **_outer(target, where),
    }


def hydra_config(
    target: Mapping[str, Any], where: str, *, heads: int = 4, layers: int = 1
) -> dict[str, Any]:
    """config.json of Hydra heads for a target (zankner/Hydra `hydra_model.py`).

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        heads: tokens ahead.
        layers: residual blocks of a head.

    Raises:
        UsageError: the target has no such sizes.
    """
    sizes = {"hydra_num_heads": heads, "hydra_num_layers": layers, "hydra_head_arch": "mlp"}
    return {**_outer(target, where), **sizes, "grounded_heads": True}


def cerberus_config(
    target: Mapping[str, Any], where: str, *, heads: int = 4, layers: int = 2
) -> dict[str, Any]:
    """config.json of Cerberus heads; arguments and errors as of `hydra_config`."""
    sizes = {"cerberus_num_heads": heads, "cerberus_num_layers": layers}
    return {**_outer(target, where), **sizes}


def blockwise_config(target: Mapping[str, Any], where: str, *, heads: int = 4) -> dict[str, Any]:
    """config.json of blockwise parallel decoding: hidden layers as wide as the target's MLP.

    Arguments and errors as of `hydra_config`.
    """
    inner = _sizes(target, where)["intermediate_size"]
    sizes = {"blockwise_num_heads": heads, "blockwise_hidden_size": inner}
    return {**_outer(target, where), **sizes}


def mlp_speculator_config(
    target: Mapping[str, Any], where: str, *, steps: int = 3
) -> dict[str, Any]:
    """config.json of an MLP speculator of the target's width (fms-extras, vLLM `mlp_speculator`).

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        steps: tokens ahead.

    Raises:
        UsageError: the target has no such sizes.
    """
    width = _sizes(target, where)["hidden_size"]
    return {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        **_outer(target, where),
        **{"emb_dim": width, "inner_dim": width, "n_predict": steps},
        **{"tie_weights": False, "scale_input": True},
    }


def redrafter_config(target: Mapping[str, Any], where: str, *, layers: int = 2) -> dict[str, Any]:
    """config.json of a recurrent drafter (apple/ml-recurrent-drafter).

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        layers: residual blocks before its LM head.

    Raises:
        UsageError: the target has no such sizes.
    """
    outer = _outer(target, where)
    sizes = {"exit_dim": 2 * outer["hidden_size"], "num_draft_layers": layers, "rnn": True}
    return {"model_type": "recurrent_drafting_drafter", **outer, **sizes}


def peagle_config(target: Mapping[str, Any], where: str, *, depth: int = 8) -> dict[str, Any]:
    """config.json of a P-EAGLE head: EAGLE-3 with masks ahead of the text, SpecForge's depth.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        depth: tokens that one pass drafts.

    Raises:
        UsageError: the target has no such sizes.
    """
    entries = _sizes(target, where)["vocab_size"]
    masks = {"mask_token_id": entries - 1, "num_depths": depth, "parallel_drafting": True}
    return eagle3_config(target, where) | masks


def layered_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What config.json says of transformer layers of a target's size.

    Raises:
        UsageError: the target has no such sizes.
    """
    return {"max_position_embeddings": _CONTEXT, **_sizes(target, where)}


def _outer(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Width, vocabulary and number type, of heads without transformer layers."""
    sizes = _sizes(target, where)
    copied = ("hidden_size", "vocab_size", "torch_dtype", "dtype")
    return {name: sizes[name] for name in copied if name in sizes}


def _sizes(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a head takes over from a target's config.

    Raises:
        UsageError: something of it is missing.
    """
    text = target.get("text_config", target)
    missing = [name for name in _NEEDED if not isinstance(text.get(name), int)]
    if missing:
        raise UsageError(
            f"the config has no {', '.join(missing)}, from which a head takes its size",
            where=where,
            remedy="Write the config.json of the head yourself, and name its folder as --draft.",
        )
    return {name: text[name] for name in _COPIED if text.get(name) is not None}


def _halved(size: int, halves: int, name: str, where: str) -> int:
    if name == "num_key_value_heads":
        return max(1, size >> halves)
    if size % (1 << halves):
        raise UsageError(
            f"{name} of {size} cannot be halved {halves} times",
            where=where,
            remedy="Take a head of the target's width.",
        )
    return size >> halves
