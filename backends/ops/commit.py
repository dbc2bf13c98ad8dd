"""`commit`: what a cache or a track holds of the text that was emitted becomes text there."""

from __future__ import annotations

from torch import Tensor

from specplan.backends.ops.tensors.keys import places_of
from specplan.runtime.masks import prefix


def commit(keys: Tensor, emitted: Tensor, known: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """The longest prefix of what was emitted that a cache holds.

    Args:
        keys: of the emitted prefixes of the text, int64 `[B, E]`.
        emitted: which of them there are, bool `[B, E]`.
        known: keys by slot, int64 `[B, M]`.
        there: which slots hold their nodes for good, bool `[B, M]`.

    Returns:
        The slot of each, counted from the text's end, int64 `[B, E]`, and which of them belong to
        the prefix, bool `[B, E]`.
    """
    places, resident = places_of(keys, known, there)
    return places, prefix(resident & emitted)
