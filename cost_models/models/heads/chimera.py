"""Chimera: a head that asks with the last three tokens, and is answered by the target's states.

Chimera (Zeng et al. 2024, arXiv 2402.15758; kafkayu/Chimera, Chimera_model.py): the trigram encoder
makes a vector of the embeddings of a path's last three tokens; the full-context encoder, one layer,
lets it attend to the target's states of the text, those that the layer gave at drafted tokens, and
itself; what comes out stands for the target's state there. A matrix of each step (residual decoding
heads) reads it beside the last state that the target itself gave.

In the authors' code two tokens at the start of a text have other trigrams: here a text begins with
as many copies of its first token as a trigram lacks. They save pickles of four modules; tensors
have their names behind those of the modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import Body, HeadDescription, Output, Reads
from specplan.cost_models.models.heads.shared import Sizes, layer_config, one_layer
from specplan.cost_models.models.new_heads import layered_config

TRIGRAM = 3
HEADS = "chimera_num_heads"


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
