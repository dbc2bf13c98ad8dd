"""States of a corpus as a head: what followed the nearest of them follows a state, too.

NEST (Li et al. 2024, arXiv 2405.19325) mixes the target's probabilities with those of the nearest
neighbours' tokens, by how much nearer the nearest is than the farthest, and drafts the spans that
followed them. No format of its stores is public; this is our own: config.json with `model_type:
neighbour_store`, and three tensors, `states` `[N, hidden size]`, `next_tokens` `[N]`, the token
behind each state, and `documents` `[N]`, the number of the document that both are of; states of one
document stand in its order.

As in its released code (github.com/facebookresearch/NEST, models/knn_transformers.py at 0f4fe5c),
states are those that enter the target's last layer, distances are squared ones, divided by the
square root of the width for the weights, and 1,024 neighbours count; the offset and scale of the
confidence are its defaults.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.files.safetensors_headers import read_config
from specplan.cost_models.models.heads.description import (
    HeadDescription,
    Neighbours,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import Sizes
from specplan.ir.errors import UsageError

MODEL_TYPE = "neighbour_store"
NEAREST = "num_neighbours"
MOST, OFFSET, SCALE = 1024, 0.1, 0.1


def neighbour_store(config: Config, target: Sizes) -> HeadDescription:
    """What a store's config.json says of it.

    Raises:
        UsageError: a number is missing or impossible.
    """
    width = config.size("hidden_size")
    temperature = _positive(config, "distance_temperature", sqrt(width))
    return HeadDescription(
        family=MODEL_TYPE,
        hidden_size=width,
        token_ids=config.size("vocab_size"),
        reads=Reads(layers=(config.count("state_layer"),), width=width),
        join="neighbours",
        neighbours=Neighbours(
            states=config.size("num_states"),
            nearest=config.size(NEAREST, default=MOST),
            temperature=temperature,
            offset=float(config.get("retrieval_offset", OFFSET)),
            scale=_positive(config, "retrieval_scale", SCALE),
        ),
        output=Output(vocabulary=target.vocab_size),
    )


def store_config(
    target: Sizes,
    states: int,
    nearest: int = MOST,
    offset: float = OFFSET,
    scale: float = SCALE,
    temperature: float | None = None,
    digest: str = "",
) -> dict[str, Any]:
    """config.json of a store of a target's states.

    Args:
        target: whose states they are.
        states: how many.
        nearest: see `Neighbours`.
        offset: see `Neighbours`.
        scale: see `Neighbours`.
        temperature: see `Neighbours`; None for the square root of the hidden size.
        digest: identity of the target's files.
    """
    return {
        "model_type": MODEL_TYPE,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "state_layer": target.num_layers - 1,
        "num_states": states,
        NEAREST: nearest,
        "distance_temperature": temperature or sqrt(target.hidden_size),
        "retrieval_offset": offset,
        "retrieval_scale": scale,
        "target": digest,
    }


def is_store_folder(folder: Path | str) -> bool:
    """Whether a folder holds a store; a broken folder does not."""
    try:
        return NEAREST in read_config(Path(folder))
    except UsageError:
        return False


def _positive(config: Config, key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        what = f"config.json gives {value!r} for {key}, not a positive number"
        raise UsageError(what, where=config.where)
    return float(value)
