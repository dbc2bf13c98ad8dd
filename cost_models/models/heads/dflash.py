"""Block drafters: DFlash (arXiv 2602.06036), layers over a block of masks.

Text enters as keys and values alone, which every layer projects from the target's joined states;
the last token and the masks after it see these and each other. Names of tensors: z-lab/dflash
model/dflash.py, `speculators` dflash/core.py.
"""

from __future__ import annotations

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Levels,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import (
    LAYER_NAMES,
    Sizes,
    inner_config,
    layer_config,
    numbers,
    refused,
)
from specplan.ir.errors import UsageError


def dflash(config: Config, target: Sizes) -> HeadDescription:
    """DFlash, in the form of its authors or of `speculators`.

    Raises:
        MissingCapabilityError: a form that is not run.
        UsageError: a key is missing.
    """
    inner, more = inner_config(config), Config(config.get("dflash_config", {}), config.where)
    kind = str(more.get("projector_type", "dflash"))
    for key in ("markov_rank", "selector_rank", "conv_kernel_size", "sliding_window_non_causal"):
        if config.get(key) or more.get(key):
            raise refused(key, config.where)
    if kind != "dflash":
        raise refused(f"projector_type {kind!r}", config.where)
    if config.flag("sample_from_anchor") or more.flag("sample_from_anchor"):
        raise refused("sample_from_anchor", config.where)
    layers = inner.size("num_hidden_layers")
    vocabulary = inner.size("vocab_size")
    known = config.size("draft_vocab_size", default=vocabulary)
    return HeadDescription(
        family="dflash",
        hidden_size=inner.size("hidden_size"),
        token_ids=vocabulary,
        reads=Reads(
            layers=block_layers(config, target, layers),
            width=target.hidden_size,
            project=True,
            normed_after=True,
        ),
        join="block",
        begins=0,
        inner_norm=float(inner.get("rms_norm_eps", 1e-6)),
        body=Body(layers=layers, config=layer_config(inner)),
        levels=Levels(count=block_size(config) - 1, by="slots", mask_token=mask_token(config)),
        output=Output(norm=True, head="own" if known != vocabulary else "target", vocabulary=known),
        names=(
            (r"fc\.weight", "project.weight"),
            (r"hidden_norm\.weight", "after_project.weight"),
            (r"norm\.weight", "norm.weight"),
            (r"lm_head\.weight", "heads.0.weight" if known != vocabulary else ""),
            (r"d2t", "offsets"),
            (r"t2d", "members"),
            (r"embed_tokens\.weight", ""),
            (r"verifier_(?:norm|lm_head)\.weight", ""),
            *LAYER_NAMES,
        ),
    )


def block_layers(config: Config, target: Sizes, count: int) -> tuple[int, ...]:
    """After how many of the target's layers a block drafter of `count` layers reads its states."""
    layers = numbers(config, "aux_hidden_state_layer_ids")
    if layers is not None:
        return layers
    more = Config(config.get("dflash_config", {}), config.where)
    given = numbers(more, "target_layer_ids") or numbers(config, "target_layer_ids")
    given = given or spread_layers(target.num_layers, count)
    return tuple(number + 1 for number in given)  # outputs of these layers, counted from 0


def spread_layers(target_layers: int, count: int) -> tuple[int, ...]:
    """The target's layers that a block drafter reads unless it says so, evenly from 1 to N - 3.

    Source: z-lab/dflash `build_target_layer_ids`.
    """
    if count == 1:
        return (target_layers // 2,)
    last = target_layers - 3
    return tuple(round(1 + index * (last - 1) / (count - 1)) for index in range(count))


def mask_token(config: Config) -> int:
    """The token that stands where a block is to be drafted.

    Raises:
        UsageError: config.json names none.
    """
    more = Config(config.get("dflash_config", {}), config.where)
    mask = more.get("mask_token_id", config.get("mask_token_id"))
    if mask is None:
        raise UsageError("config.json names no mask_token_id", where=config.where)
    return int(mask)


def block_size(config: Config) -> int:
    """Tokens of a block, the last one of the text among them.

    Raises:
        UsageError: config.json names none, or a block that drafts nothing.
    """
    more = Config(config.get("dflash_config", {}), config.where)
    size = (config if config.get("block_size") is not None else more).size("block_size")
    if size < 2:
        raise UsageError("a block of less than two tokens drafts nothing", where=config.where)
    return size
