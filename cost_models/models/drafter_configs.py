"""config.json of drafters that read a target's hidden states, in the forms that engines publish.

Structures: EAGLE-3 (arXiv 2503.01840; SafeAILab/EAGLE cnets.py, SpecForge llama3_eagle.py, vLLM
llama_eagle3.py): a matrix joins hidden states of several of the target's layers, the first layer
attends from that and the token's embedding side by side, and the head may know a part of the
vocabulary. DFlash (arXiv 2602.06036; z-lab/dflash model/dflash.py): the same joining matrix, some
layers over a block of masks, and the target's own embedding and head. The `speculators` form of
either (vllm-project/speculators config.py) keeps the sizes under `transformer_layer_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.registry import read_decoder
from specplan.cost_models.models.layers import Decoder, GroupedAttention, LayerShape
from specplan.ir.errors import MissingCapabilityError, UsageError

DrafterKind = Literal["recurrent", "block"]
_CLASSES: Mapping[str, DrafterKind] = {
    "LlamaForCausalLMEagle3": "recurrent",
    "Eagle3LlamaForCausalLM": "recurrent",
    "DFlashDraftModel": "block",
}
_SPECULATORS: Mapping[str, DrafterKind] = {"eagle3": "recurrent", "dflash": "block"}
_WORDS = ("eagle", "medusa", "dflash", "dspark", "speculator", "mtp", "nextn", "draft", "hydra")
"""What the name of a class or of a `model_type` says of a drafter, in lower case."""
_FORMS = "an EAGLE-3 head or a DFlash block drafter"


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What the config.json of a drafter says.

    Attributes:
        kind: `recurrent` drafts a level per pass, from the target's hidden states first and from
            its own after that; `block` drafts a block of tokens in one pass.
        decoder: its structure.
        token_ids: entries of the vocabulary whose ids it takes, the target's.
        feature_layers: after how many layers of the target the hidden states are taken.
        block: tokens drafted by one pass; 1 for `recurrent`.
        mask_token: the token that stands where a block is to be drafted.
    """

    kind: DrafterKind
    decoder: Decoder
    token_ids: int
    feature_layers: tuple[int, ...]
    block: int = 1
    mask_token: int | None = None


def is_drafter(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a drafter rather than of a language model of its own."""
    if config.get("speculators_model_type") or config.get("dflash_config"):
        return True
    names = [*(config.get("architectures") or ()), str(config.get("model_type", ""))]
    return any(word in str(name).lower() for name in names for word in _WORDS)


def read_drafter_config(config: Mapping[str, Any], target: Decoder, where: str) -> DrafterConfig:
    """What a drafter's config.json says of it as a drafter for a target.

    Raises:
        MissingCapabilityError: a form that is not priced; names it.
        UsageError: a key is missing or wrong.
    """
    kind = _kind(config, where)
    inner = dict(config.get("transformer_layer_config") or config)
    base = read_decoder({**inner, "architectures": [], "dflash_config": None}, where)
    if not all(isinstance(layer.attention, GroupedAttention) for layer in base.layers):
        raise _refused("latent attention", where)
    read = _recurrent if kind == "recurrent" else _block
    return read(Config(config, where), base, target)


def _kind(config: Mapping[str, Any], where: str) -> DrafterKind:
    stated = config.get("speculators_model_type")
    classes = [str(name) for name in config.get("architectures") or ()]
    kind = _SPECULATORS.get(str(stated)) if stated else None
    if stated is None:
        kind = next((_CLASSES[name] for name in classes if name in _CLASSES), None)
    if kind is None:
        named = stated or next(iter(classes), None) or config.get("model_type", "unnamed")
        raise _refused(f"the form {named!r}", where)
    return kind


def _recurrent(config: Config, base: Decoder, target: Decoder) -> DrafterConfig:
    eagle = Config(config.get("eagle_config", {}), config.where)
    if not eagle.flag("use_aux_hidden_state", True):
        raise _refused("use_aux_hidden_state: false", config.where)
    if eagle.count("parallel_draft_step") > 1:
        raise _refused("parallel_draft_step above 1", config.where)
    layers = _numbers(config, "eagle_aux_hidden_state_layer_ids")
    given = _numbers(eagle, "eagle_aux_hidden_state_layer_ids")
    if layers is None and given is not None:
        layers = tuple(number + 1 for number in given)  # SGLang: outputs of these layers
    if layers is None:
        count = target.num_layers
        layers = (2, count // 2, count - 3)
    width = len(layers) * config.size("target_hidden_size", default=base.hidden_size)
    norms = width * (config.flag("norm_before_fc") + config.flag("fc_norm"))
    first, *others = base.layers
    decoder = replace(
        base,
        layers=(_joining(first, base.hidden_size), *others),
        vocab_size=config.size("draft_vocab_size", default=base.vocab_size),
        tied_embeddings=False,
        feature_width=width,
        final_norm_parameters=base.final_norm_parameters + norms,
        owns_embedding=base.hidden_size != target.hidden_size,
    )
    return DrafterConfig("recurrent", decoder, base.vocab_size, layers)


def _joining(layer: LayerShape, hidden: int) -> LayerShape:
    """The first layer: embedding and hidden state, each with its norm, side by side."""
    assert isinstance(layer.attention, GroupedAttention), "checked before"
    attention = replace(layer.attention, input_width=2 * hidden)
    return replace(layer, attention=attention, norm_parameters=layer.norm_parameters + hidden)


def _block(config: Config, base: Decoder, target: Decoder) -> DrafterConfig:
    more = Config(config.get("dflash_config", {}), config.where)
    kind = str(more.get("projector_type", "dflash"))
    for key in ("markov_rank", "selector_rank", "conv_kernel_size"):
        if config.get(key) or more.get(key):
            raise _refused(key, config.where)
    if kind != "dflash":
        raise _refused(f"projector_type {kind!r}", config.where)
    layers = _numbers(config, "aux_hidden_state_layer_ids")
    if layers is None:
        given = _numbers(more, "target_layer_ids") or _numbers(config, "target_layer_ids")
        given = given or spread_layers(target.num_layers, base.num_layers)
        layers = tuple(number + 1 for number in given)  # outputs of these layers, counted from 0
    mask = more.get("mask_token_id", config.get("mask_token_id"))
    if mask is None:
        raise UsageError("config.json names no mask_token_id", where=config.where)
    size = config if config.get("block_size") is not None else more
    slots = size.size("block_size")
    if slots < 2:
        raise UsageError("a block of less than two tokens drafts nothing", where=config.where)
    own_head = config.get("draft_vocab_size", base.vocab_size) != base.vocab_size
    decoder = replace(
        base,
        vocab_size=config.size("draft_vocab_size", default=base.vocab_size),
        tied_embeddings=False,
        feature_width=len(layers) * target.hidden_size,
        final_norm_parameters=2 * base.final_norm_parameters,  # of the joined states, and the last
        owns_embedding=False,
        owns_head=own_head,
    )
    return DrafterConfig("block", decoder, base.vocab_size, layers, slots - 1, int(mask))


def spread_layers(target_layers: int, count: int) -> tuple[int, ...]:
    """The target's layers that a block drafter reads unless it says so, evenly from 1 to N - 3.

    Source: z-lab/dflash `build_target_layer_ids`.
    """
    if count == 1:
        return (target_layers // 2,)
    last = target_layers - 3
    return tuple(round(1 + index * (last - 1) / (count - 1)) for index in range(count))


def _numbers(config: Config, key: str) -> tuple[int, ...] | None:
    numbers = config.get(key)
    if numbers is None:
        return None
    if (
        not isinstance(numbers, list)
        or not all(type(number) is int for number in numbers)
        or not numbers
    ):
        raise UsageError(f"config.json: {key} is no list of layers", where=config.where)
    return tuple(numbers)


def _refused(what: str, where: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"drafters cannot be priced yet with {what}",
        where=where,
        remedy=f"Use {_FORMS}, or a draft model of its own.",
    )
