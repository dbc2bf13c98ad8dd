"""Families of drafters that can be trained for a target: their sizes and published recipes.

A family is data: the config.json of a drafter of a size, and what its training takes. Plans and
prices are those of the methods that draft with such a config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from specplan.cost_models.models.heads.amphista import amphista_config
from specplan.cost_models.models.heads.clover import clover_config
from specplan.cost_models.models.heads.eagle import fspad_config
from specplan.cost_models.models.heads.look_ahead import (
    bita_config,
    hidden_transfer_config,
    look_ahead_config,
    skipping_config,
    streams_config,
)
from specplan.cost_models.models.heads.states_as_keys import chimera_config, tandem_config
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.new_heads import (
    DRAFT_VOCABULARY,
    blockwise_config,
    cerberus_config,
    dflash_config,
    eagle3_config,
    eagle_config,
    hydra_config,
    medusa_config,
    mlp_speculator_config,
    peagle_config,
    redrafter_config,
)

Config = Mapping[str, Any]


@dataclass(frozen=True)
class HeadSize:
    """How large a drafter is.

    Attributes:
        layers: transformer layers, or residual blocks of heads without any.
        halves: how often its width is half of the one before, from the target's hidden size on.
        vocabulary: tokens that it drafts from.
        published: published acceptance is of drafters of this size.
    """

    layers: int
    vocabulary: int
    halves: int = 0
    published: bool = False


@dataclass(frozen=True)
class Recipe:
    """What a published training of a drafter takes.

    Attributes:
        samples: conversations.
        epochs: passes over them.
        unroll: positions that the drafter runs, forward and backward, for a token of the text.
        source: where that is from.
        stored: the target's hidden states are computed in the first epoch only.
    """

    samples: int
    epochs: int
    unroll: float
    source: str
    stored: bool = False


@dataclass(frozen=True)
class Family:
    """A kind of drafter that can be trained for a target.

    Attributes:
        name: as users write it, and the name of its published figures in
            `cost_models.acceptance.priors`.
        words: what it is.
        sizes: that are worth a look, for a target; the first one is the published one.
        config: config.json of a drafter of a size from the target's and its path; None for modules
            that run the target's own layers.
        recipe: how such drafters are trained.
        estimated: published figures say what it would be worth before it is trained. Where none
            do, it is trained and measured, and left out of estimates unless it is named.
    """

    name: str
    words: str
    sizes: Callable[[ModelShape], Iterator[HeadSize]]
    config: Callable[[Config, str, HeadSize], Config] | None
    recipe: Recipe
    estimated: bool = True


def _eagle3_sizes(target: ModelShape) -> Iterator[HeadSize]:
    """One layer and 32,000 tokens as published; all tokens, two layers, half the width."""
    entries = target.vocab_size
    reduced = min(DRAFT_VOCABULARY, entries)
    yield HeadSize(1, reduced, published=True)
    if reduced < entries:
        yield HeadSize(1, entries, published=True)  # knows the same tokens, and more
    yield HeadSize(2, reduced)
    yield HeadSize(1, reduced, halves=1)


def _dflash_sizes(target: ModelShape) -> Iterator[HeadSize]:
    """Five layers as published, two and one."""
    for layers in (5, 2, 1):
        yield HeadSize(layers, target.vocab_size, published=layers == 5)


def _one_layer(target: ModelShape) -> Iterator[HeadSize]:
    yield HeadSize(1, target.vocab_size, published=True)


def _medusa_sizes(target: ModelShape) -> Iterator[HeadSize]:
    """One residual block a head, as published, and two."""
    yield from _one_layer(target)
    yield HeadSize(2, target.vocab_size)


def _module_sizes(target: ModelShape) -> Iterator[HeadSize]:
    yield HeadSize(1, target.vocab_size)


def _eagle3(target: Config, where: str, size: HeadSize) -> Config:
    more = {"layers": size.layers, "halves": size.halves, "vocabulary": size.vocabulary}
    return eagle3_config(target, where, **more)


def _layered(config: Callable[..., Config]) -> Callable[[Config, str, HeadSize], Config]:
    return lambda target, where, size: config(target, where, layers=size.layers)


def _of_one_size(config: Callable[[Config, str], Config]) -> Callable[..., Config]:
    return lambda target, where, size: config(target, where)


def _measured(
    name: str, words: str, config: Callable[[Config, str], Config], recipe: Recipe
) -> Family:
    """A family of one size, of whose acceptance nothing is published in a form that prices it."""
    return Family(name, words, _one_layer, _of_one_size(config), recipe, estimated=False)


FAMILIES: Mapping[str, Family] = {
    one.name: one
    for one in (
        Family(
            "eagle3",
            "EAGLE-3 head",
            _eagle3_sizes,
            _eagle3,
            Recipe(
                532_000,
                10,
                7.0,
                "ShareGPT and UltraChat, arXiv 2503.01840 section 4; epochs and steps of the "
                "training-time test by default of SpecForge",
            ),
        ),
        Family(
            "dflash",
            "DFlash block drafter",
            _dflash_sizes,
            _layered(dflash_config),
            Recipe(
                1_300_000,
                10,
                512 * 16 / 3072,
                "data and epochs of the DSpark paper, Table 1; 512 blocks of 16 in a text of 3,072 "
                "tokens, SpecForge",
            ),
        ),
        Family(
            "medusa",
            "Medusa heads",
            _medusa_sizes,
            _layered(medusa_config),
            Recipe(68_000, 2, 1.0, "ShareGPT, arXiv 2401.10774; FasterDecoding/Medusa"),
        ),
        Family(
            "eagle",
            "EAGLE-1 head",
            _one_layer,
            _of_one_size(eagle_config),
            Recipe(68_000, 20, 1.0, "ShareGPT, arXiv 2401.15077; epochs of SafeAILab/EAGLE"),
        ),
        Family(
            "mtp",
            "MTP module",
            _module_sizes,
            None,
            Recipe(532_000, 10, 1.0, "no recipe for a finished target is published; as EAGLE-3's"),
        ),
        _measured("hydra", "Hydra heads", hydra_config,
            Recipe(68_000, 10, 4.0, "ShareGPT, arXiv 2402.05109; zankner/Hydra")),
        _measured("mlp_speculator", "MLP speculator", mlp_speculator_config,
            Recipe(2_000_000, 1, 3.0, "steps and rows of its second stage, fms-fsdp")),
        _measured("redrafter", "ReDrafter", redrafter_config,
            Recipe(68_000, 2, 5.0, "ShareGPT, arXiv 2403.09919; apple/ml-recurrent-drafter")),
        _measured("peagle", "P-EAGLE head", peagle_config,
            Recipe(532_000, 10, 8.0, "data as EAGLE-3's; depths of SpecForge")),
        _measured("blockwise", "blockwise heads", blockwise_config,
            Recipe(68_000, 2, 1.0, "as Medusa's")),
        _measured("amphista", "Amphista heads", amphista_config,
            Recipe(68_000, 2, 1.0, "ShareGPT, arXiv 2406.13170; epochs as Medusa's")),
        _measured("fspad", "FSPAD head", fspad_config,
            Recipe(68_000, 20, 1.0, "ShareGPT, arXiv 2408.15562; epochs of Luc4Gui/FSPAD")),
        _measured("clover", "Clover head", partial(clover_config, version=1),
            Recipe(68_000, 20, 5.0, "as Clover-2's")),
        _measured("clover2", "Clover-2 head", clover_config,
            Recipe(68_000, 20, 5.0, "ShareGPT, arXiv 2408.00264; epochs of XiaoBin1992/clover")),
        _measured("chimera", "Chimera head", chimera_config,
            Recipe(68_000, 2, 4.0, "ShareGPT, arXiv 2402.15758; epochs of kafkayu/Chimera")),
        _measured("tandem", "tandem model", tandem_config,
            Recipe(532_000, 10, 3.0, "no recipe for a finished target is published; as EAGLE-3's")),
        _measured("cerberus", "Cerberus heads", cerberus_config,
            Recipe(68_000, 2, 1.0, "as Medusa's")),
        _measured("look_ahead_tokens", "look-ahead tokens", look_ahead_config,
            Recipe(68_000, 2, 3.0, "data and epochs as Medusa's; three tokens as BiTA's masks")),
        _measured("bita", "BiTA's masks and prompt", bita_config,
            Recipe(68_000, 2, 3.0, "data and epochs as Medusa's; three tokens as BiTA's masks")),
        _measured("hidden_transfer", "hidden transfer", hidden_transfer_config,
            Recipe(68_000, 2, 3.0, "data and epochs as Medusa's")),
        _measured("streams", "speculative streams", streams_config,
            Recipe(68_000, 2, 3.0, "data and epochs as Medusa's")),
        _measured("skipping_tokens", "look-ahead tokens that skip layers", skipping_config,
            Recipe(68_000, 2, 5.0, "data and epochs as Medusa's")),
    )
}  # fmt: skip
"""Families by name. A size that nobody published has no acceptance of its own."""
