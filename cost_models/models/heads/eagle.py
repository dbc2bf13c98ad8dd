"""EAGLE-1/2, EAGLE-3 and P-EAGLE: one layer over the target's states and the next token.

EAGLE (Li et al. 2024, arXiv 2401.15077): a matrix joins the embedding with the last state; the
target's own head follows. EAGLE-3 (arXiv 2503.01840): a matrix joins states of several layers, the
first attention reads that and the embedding side by side, and the head may know a part of the
vocabulary. P-EAGLE (AWS, amazon/gpt-oss-120b-p-eagle) runs EAGLE-3 with mask tokens and a trained
state ahead of the text. Names of tensors: SafeAILab/EAGLE cnets.py, SpecForge llama3_eagle.py, vLLM
llama_eagle3.py, `speculators` eagle3/core.py, NVIDIA Model-Optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Levels,
    Norms,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import (
    LAYER_NAMES,
    Sizes,
    inner_config,
    layer_config,
    numbers,
    one_layer,
    refused,
)
from specplan.cost_models.models.new_heads import eagle_config

_NAMES = (
    (r"(?:|model\.)embed_tokens\.weight", "embedding.weight"),
    (r"fc\.(weight|bias)", r"project.\1"),
    (r"(?:midlayer|layers\.0)\.hidden_norm\.weight", "state_norm.weight"),
    (r"(?:midlayer|layers\.0)\.input_layernorm\.weight", "token_norm.weight"),
    (r"input_norm\.weight", "feature_norms.0.weight"),
    (r"fc_norm\.(\d+)\.weight", r"feature_norms.\1.weight"),
    (r"mask_hidden", "mask_state"),
    (r"norm\.weight", "norm.weight"),
    (r"lm_head\.weight", "heads.0.weight"),
    (r"d2t", "offsets"),
    (r"draft_id_to_target_id", "offsets"),
    (r"t2d", "members"),
    (r"(?:.*\.)?rotary_emb\.inv_freq", ""),
    (r"verifier_(?:norm|lm_head)\.weight", ""),
)
_ONE_LAYER = one_layer(r"midlayer\.")


def eagle3(config: Config, target: Sizes) -> HeadDescription:
    """EAGLE-3 or P-EAGLE, in the form of SpecForge, `speculators` or NVIDIA.

    Raises:
        MissingCapabilityError: a form that is not run.
    """
    inner, nested = inner_config(config), Config(config.get("eagle_config", {}), config.where)
    for key, usual in _USUAL.items():
        if nested.flag(key, usual) != usual:
            raise refused(f"{key}: {not usual}".lower(), config.where)
    if nested.count("parallel_draft_step") > 1:
        raise refused("parallel_draft_step above 1", config.where)
    layers = feature_layers(config, target)
    width = inner.size("hidden_size")
    mask = next((config.get(key) for key in _MASKS if config.get(key) is not None), None)
    parallel = mask is not None and (
        config.flag("parallel_drafting") or config.get("speculators_model_type") == "peagle"
    )
    norm: Norms = "each" if config.flag("fc_norm") else "none"
    return HeadDescription(
        family="peagle" if parallel else "eagle3",
        hidden_size=width,
        token_ids=inner.size("vocab_size"),
        reads=Reads(
            layers=layers,
            width=config.size("target_hidden_size", default=width),
            norm="joined" if config.flag("norm_before_fc") else norm,
            project=True,
        ),
        join="wide",
        embedding="either",
        inner_norm=float(inner.get("rms_norm_eps", 1e-6)),
        body=Body(
            layers=inner.size("num_hidden_layers", default=1),
            config=layer_config(inner),
            normed_residual=config.flag("norm_before_residual"),
        ),
        levels=_levels(config, int(mask)) if parallel and mask is not None else Levels(),
        output=Output(
            norm=True,
            onward="after_norm" if config.flag("norm_output") else "before_norm",
            head="own",
            vocabulary=config.size("draft_vocab_size", default=inner.size("vocab_size")),
        ),
        names=(*_NAMES, *_ONE_LAYER, *LAYER_NAMES),
    )


_MASKS = ("mask_token_id", "ptd_token_id", "pard_token")
_USUAL = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
}
"""Flags of `eagle_config` as EAGLE-3 has them (NVIDIA Model-Optimizer)."""


def _levels(config: Config, mask: int) -> Levels:
    """Mask tokens ahead of P-EAGLE."""
    count = config.size("num_depths", "num_speculative_tokens", default=8)
    return Levels(count=count, by="slots", mask_token=mask, own_state=True)


def feature_layers(config: Config, target: Sizes) -> tuple[int, ...]:
    """After how many layers of the target an EAGLE-3 head reads its states.

    `speculators` states that number itself; `eagle_config` names the layers, counted from 0, whose
    outputs these are; a head that says nothing reads early, middle and late ones.
    """
    layers = numbers(config, "eagle_aux_hidden_state_layer_ids")
    if layers is None:
        nested = Config(config.get("eagle_config", {}), config.where)
        given = numbers(nested, "eagle_aux_hidden_state_layer_ids")
        layers = None if given is None else tuple(number + 1 for number in given)
    count = target.num_layers
    return layers or (2, count // 2, count - 3)


def fspad(config: Config, target: Sizes) -> HeadDescription:
    """FSPAD (Gui et al. 2024, arXiv 2408.15562): EAGLE-1 whose states are sampled by the token.

    Its authors' config.json is EAGLE's; `feature_sampling: true` is a key of our own. Names of
    tensors: Luc4Gui/FSPAD model/cnets_fspad.py.

    Raises:
        MissingCapabilityError: more than one layer.
    """
    one = eagle1(config, target)
    if one.body.layers != 1 or not config.flag("feature_sampling"):
        raise refused("feature_sampling: false, or more than one layer", config.where)
    return replace(
        one,
        family="fspad",
        join="sample",
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        body=replace(one.body, two_states=True),
        names=(
            (r"fc\.fc\.(weight|bias)", r"project.\1"),
            (r"fc\.mlp\.(gate|up|down)_proj\.weight", r"sampling.\1.weight"),
            (r"fc\.post_attention_layernorm\.weight", "sampling.norm.weight"),
            *one.names,
        ),
    )


def eagle1(config: Config, target: Sizes) -> HeadDescription:
    """EAGLE-1 or EAGLE-2: a layer without a norm before its attention, and no final norm.

    More layers, as KOALA (Zhang et al. 2024, arXiv 2408.08146) has them, are whole ones.
    """
    width = config.size("hidden_size")
    return HeadDescription(
        family="eagle",
        hidden_size=width,
        token_ids=config.size("vocab_size"),
        reads=Reads(
            width=width, finished=True, bias=config.flag("bias", config.flag("eagle_fc_bias", True))
        ),
        join="concat",
        embedding="either",
        body=Body(
            layers=config.size("num_hidden_layers", default=1),
            config=layer_config(config),
            input_norm=False,
        ),
        output=Output(vocabulary=config.size("vocab_size")),
        names=(*_NAMES, *LAYER_NAMES, *_ONE_LAYER),
    )


def fspad_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """config.json of an FSPAD head for a target; arguments and errors as of `eagle_config`."""
    named = {"architectures": ["LlamaForCausalLM"], "feature_sampling": True}
    return {**eagle_config(target, where), **named}
