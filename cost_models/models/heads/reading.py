"""Which format a head's config.json is of, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.amphista import amphista
from specplan.cost_models.models.heads.clover import clover
from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.dflash import dflash
from specplan.cost_models.models.heads.eagle import eagle1, eagle3, fspad
from specplan.cost_models.models.heads.look_ahead import COUNT, MODEL_TYPE, look_ahead_tokens
from specplan.cost_models.models.heads.medusa import (
    blockwise,
    cerberus,
    hydra,
    medusa,
    mlp_speculator,
    redrafter,
)
from specplan.cost_models.models.heads.neighbours import NEAREST, neighbour_store
from specplan.cost_models.models.heads.own_modules import kangaroo, parallel_layers
from specplan.cost_models.models.heads.shared import Sizes, check_layers, refused
from specplan.cost_models.models.heads.states_as_keys import HEADS, LAYERS, chimera, tandem
from specplan.ir.errors import UsageError

Reader = Callable[[Config, Sizes], HeadDescription]
_CLASSES: Mapping[str, Reader] = {
    "LlamaForCausalLMEagle3": eagle3,
    "Eagle3LlamaForCausalLM": eagle3,
    "LlamaForCausalLMEagle": eagle1,
    "EagleLlamaForCausalLM": eagle1,
    "DFlashDraftModel": dflash,
    "MedusaModel": medusa,
    "MLPSpeculatorPreTrainedModel": mlp_speculator,
}
_SPECULATORS: Mapping[str, Reader] = {"eagle3": eagle3, "peagle": eagle3, "dflash": dflash}
_TYPES: Mapping[str, Reader] = {
    "medusa": medusa,
    "mlp_speculator": mlp_speculator,
    "recurrent_drafting_drafter": redrafter,
    "kangaroo": kangaroo,
    MODEL_TYPE: look_ahead_tokens,
}
_KEYS: Mapping[str, Reader] = {
    "medusa_num_heads": medusa,
    "hydra_num_heads": hydra,
    "cerberus_num_heads": cerberus,
    "blockwise_num_heads": blockwise,
    "n_future_tokens": parallel_layers,
    "exit_layer": kangaroo,
    COUNT: look_ahead_tokens,
    "clover": clover,
    "amphista_num_heads": amphista,
    HEADS: chimera,
    LAYERS: tandem,
    "feature_sampling": fspad,
    NEAREST: neighbour_store,
}
"""Keys that only one format has, where config.json names no class."""
_WORDS = ("eagle", "medusa", "dflash", "dspark", "speculator", "mtp", "nextn", "draft", "hydra")
"""What the name of a class or of a `model_type` says of a drafter, in lower case."""


def is_drafter(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a drafter rather than of a language model of its own."""
    if config.get("speculators_model_type") or config.get("dflash_config"):
        return True
    if any(key in config for key in _KEYS):
        return True
    names = [*(config.get("architectures") or ()), str(config.get("model_type", ""))]
    return any(word in str(name).lower() for name in names for word in _WORDS)


def read_description(config: Mapping[str, Any], target: Sizes, where: str) -> HeadDescription:
    """What a drafter's config.json says of it, for a target.

    Raises:
        MissingCapabilityError: a form that is not run; names it.
        UsageError: a key is missing or wrong, or it is a drafter for another target.
    """
    description = _reader(config, where)(Config(config, where), target)
    remedy = "Take the drafter that was trained for this target."
    if description.reads.width != target.hidden_size:
        raise UsageError(
            f"it reads hidden states of size {description.reads.width}, the target's hidden size "
            f"is {target.hidden_size}",
            where=where,
            remedy=f"{remedy} A head of another hidden size states target_hidden_size.",
        )
    if description.token_ids != target.vocab_size:
        raise UsageError(
            f"its vocabulary has {description.token_ids} entries, the target's {target.vocab_size}",
            where=where,
            remedy=remedy,
        )
    if description.output.vocabulary > target.vocab_size:
        raise UsageError("its draft vocabulary is larger than the target's", where=where)
    width = description.hidden_size
    if description.join == "block" and width != target.hidden_size:
        raise UsageError(
            f"it borrows the target's embedding of size {target.hidden_size}, and its own states "
            f"are of size {width}",
            where=where,
            remedy=remedy,
        )
    if description.reads.layers:
        check_layers(description.reads.layers, target, where)
    return description


def _reader(config: Mapping[str, Any], where: str) -> Reader:
    stated = config.get("speculators_model_type")
    classes = [str(name) for name in config.get("architectures") or ()]
    kind = str(config.get("model_type", "unnamed"))
    reader = _SPECULATORS.get(str(stated)) if stated else None
    if stated is None:
        reader = next((_CLASSES[name] for name in classes if name in _CLASSES), None)
        reader = reader or _TYPES.get(kind)
        reader = reader or next((_KEYS[key] for key in _KEYS if key in config), None)
    if reader is None:
        raise refused(f"the form {stated or next(iter(classes), None) or kind!r}", where)
    return reader
