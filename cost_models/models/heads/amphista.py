"""Amphista: heads that attend to each other, on two layers behind the target.

Amphista (Li et al. 2024, arXiv 2406.13170): two staged adaptation layers, causal ones, make the
target's state fit for drafting, the second one with the embedding of the token that was emitted; a
head for each token ahead reads one of them; in an auto-embedding block the heads' states attend to
each other, both ways, and the target's own LM head follows.

No code is public. Open in the paper as it was read, and chosen here: the first half of the heads
reads the first stage, the others the second (`amphista_first_stage`); heads are residual blocks as
Medusa's; positions in the block are trained vectors, and the block is a layer with norms before, as
Llama's. The form of checkpoints is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Levels,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import LAYER_NAMES, Sizes, layer_config
from specplan.cost_models.models.new_heads import layered_config
from specplan.ir.errors import UsageError

STAGES = 2


def amphista(config: Config, target: Sizes) -> HeadDescription:
    """Amphista heads.

    Raises:
        UsageError: there are fewer than two heads, more heads of the first stage than heads, or
            attention heads that do not divide the hidden size.
    """
    heads, width = config.size("amphista_num_heads"), config.size("hidden_size")
    stated = config.get("amphista_first_stage") is not None
    first = config.count("amphista_first_stage") if stated else heads // 2
    attending = config.size("num_attention_heads")
    if heads < 2 or first > heads or width % attending:
        raise UsageError(
            f"{heads} heads, {first} of the first stage, attend by {attending} parts of a state of "
            f"{width}: at least 2 heads, as many of the first stage at most, equal parts",
            where=config.where,
        )
    return HeadDescription(
        family="amphista",
        hidden_size=width,
        token_ids=config.size("vocab_size"),
        reads=Reads(width=target.hidden_size, finished=True),
        join="stages",
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        body=Body(layers=STAGES, config=layer_config(config, STAGES)),
        levels=Levels(count=heads, mixed=attending, first_stage=first),
        output=Output(vocabulary=config.size("vocab_size")),
        names=(
            (r"fc\.(weight|bias)", r"stage.\1"),
            (r"heads\.(\d+)\.linear\.(weight|bias)", r"mixed.blocks.\1.\2"),
            (r"auto_embedding\.positions", "mixed.positions"),
            (r"auto_embedding\.input_layernorm\.weight", "mixed.norm.weight"),
            (r"auto_embedding\.post_attention_layernorm\.weight", "mixed.middle.weight"),
            (r"auto_embedding\.self_attn\.([qkvo])_proj\.weight", r"mixed.\1.weight"),
            (r"auto_embedding\.mlp\.(gate|up|down)_proj\.weight", r"mixed.\1.weight"),
            *LAYER_NAMES,
        ),
    )


def amphista_config(target: Mapping[str, Any], where: str, *, heads: int = 4) -> dict[str, Any]:
    """config.json of Amphista heads for a target.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        heads: tokens ahead.

    Raises:
        UsageError: the target has no such sizes.
    """
    return {"model_type": "amphista", "amphista_num_heads": heads, **layered_config(target, where)}
