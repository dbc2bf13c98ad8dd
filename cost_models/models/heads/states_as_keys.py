"""Heads whose layers tokens ask, and whose keys and values are those of the target's states.

Chimera (Zeng et al. 2024, arXiv 2402.15758; kafkayu/Chimera, Chimera_model.py): the trigram encoder
makes a vector of the embeddings of a path's last three tokens; the full-context encoder, one layer,
lets it attend to the target's states of the text, those that the layer gave at drafted tokens, and
itself; what comes out stands for the target's state there. A matrix of each step (residual decoding
heads) reads it beside the last state that the target itself gave.

In the authors' code two tokens at the start of a text have other trigrams: here a text begins with
as many copies of its first token as a trigram lacks. They save pickles of four modules; tensors
have their names behind those of the modules.

Tandem Transformers (Aishwarya P S et al. 2024, arXiv 2402.08644): in each layer of a small model,
keys and values of the tokens that the large one has read are those of the large one's states after
a layer that belongs to this one, by a matrix; those of the block, which the large one has yet to
read, are the small model's own. Here a block is what one round drafts, and the target verifies it.
Nothing is public; chosen here: the matrices have no bias, and the small layer's own norm follows
them. config.json is that of a Llama model with `tandem_layers`, after how many of the target's
layers the states of each layer are taken; tensors have the names of `transformers`, and
`tandem.N.weight` are the matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import Body, HeadDescription, Output, Reads
from specplan.cost_models.models.heads.dflash import spread_layers
from specplan.cost_models.models.heads.shared import (
    LAYER_NAMES,
    Sizes,
    layer_config,
    numbers,
    one_layer,
)
from specplan.cost_models.models.new_heads import layered_config
from specplan.ir.errors import UsageError

TRIGRAM = 3
HEADS = "chimera_num_heads"
LAYERS = "tandem_layers"


def chimera(config: Config, target: Sizes) -> HeadDescription:
    """A Chimera head, whose layer is as wide as the target's."""
    vocabulary = config.size("vocab_size")
    return HeadDescription(
        family="chimera",
        hidden_size=config.size("hidden_size"),
        token_ids=vocabulary,
        reads=Reads(width=target.hidden_size, finished=True),
        join="ngram",
        tokens_read=TRIGRAM,
        steps=config.size(HEADS),
        body=Body(layers=1, config=layer_config(config, 1)),
        output=Output(head="each", vocabulary=vocabulary),
        names=(
            (r"trimlp\.0\.linear\.(weight|bias)", r"ngram.block.\1"),
            (r"trimlp\.1\.weight", "ngram.project.weight"),
            (r"chimera_head\.(\d+)\.0\.weight", r"heads.\1.weight"),
            *one_layer(r"fast_layer1\.0\."),
        ),
    )


def chimera_config(target: Mapping[str, Any], where: str, *, heads: int = 4) -> dict[str, Any]:
    """config.json of a Chimera head for a target, of four steps as in its authors' README.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        heads: steps with a matrix of their own.

    Raises:
        UsageError: the target has no such sizes.
    """
    return {"model_type": "chimera", HEADS: heads, **layered_config(target, where)}


def tandem(config: Config, target: Sizes) -> HeadDescription:
    """A small model beside a target.

    Raises:
        UsageError: there are not as many layers of the target as it has itself.
    """
    layers, count = numbers(config, LAYERS) or (), config.size("num_hidden_layers")
    if len(layers) != count:
        raise UsageError(
            f"{LAYERS} names {len(layers)} layers of the target for {count} of its own",
            where=config.where,
            remedy="Name one for each.",
        )
    vocabulary = config.size("vocab_size")
    return HeadDescription(
        family="tandem",
        hidden_size=config.size("hidden_size"),
        token_ids=vocabulary,
        reads=Reads(
            layers=layers,
            width=config.size("target_hidden_size", default=target.hidden_size),
            project=True,
        ),
        join="tandem",
        embedding="either",
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        body=Body(layers=count, config=layer_config(config)),
        output=Output(norm=True, head="own", vocabulary=vocabulary),
        names=(
            (r"model\.embed_tokens\.weight", "embedding.weight"),
            (r"model\.norm\.weight", "norm.weight"),
            (r"lm_head\.weight", "heads.0.weight"),
            (r"tandem\.(\d+)\.weight", r"by_layer.\1.weight"),
            *((rf"model\.{name}", into) for name, into in LAYER_NAMES),
        ),
    )


def tandem_config(target: Mapping[str, Any], where: str, *, layers: int = 2) -> dict[str, Any]:
    """config.json of a small model of a target's width, with its embeddings, and few layers.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        layers: of the small model, whose states are those of layers spread over the target.

    Raises:
        UsageError: the target has no such sizes.
    """
    sizes = layered_config(target, where)
    count = Config(target.get("text_config", target), where).size("num_hidden_layers")
    read = [max(layer, 1) for layer in spread_layers(count, layers)]
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        LAYERS: read,
        "target_hidden_size": sizes["hidden_size"],
        **sizes,
    }
