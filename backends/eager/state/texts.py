"""Texts of a batch, as passes and lowerings read them: on the host's lengths, or while traced."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.values import Tree
from specplan.runtime.sampling import SamplingSettings


class Texts:
    """Texts, and what is known of their tokens.

    Attributes:
        text: int64 `[B, S + 1]`; the last column is never part of a text, but that of dead lanes.
        keys: of the text up to every token, int64 `[B, S + 1]`.
        ends: lengths of the texts, int64 `[B, 1]`.
        last: positions of their last tokens, int64 `[B, 1]`.
        written: positions `[B, W]` of what this round emitted, keys, and which of them there are.
        tracks: hidden states of them, and of drafted nodes, by name.
        settings: how the requests sample.
    """

    text: Tensor
    keys: Tensor
    ends: Tensor
    last: Tensor
    written: tuple[Tensor, Tensor, Tensor]
    tracks: dict[str, Track]
    settings: SamplingSettings
    _root: Tree | None = None

    @property
    def size(self) -> int:
        """Requests, B."""
        return self.text.shape[0]

    def root(self, scores: torch.dtype | None) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        if self._root is None:
            tokens, keys = self.text.gather(1, self.last), self.last_keys()
            self._root = first_tree(tokens, keys, scores)
        return self._root

    def last_keys(self) -> Tensor:
        """Keys of the last tokens, int64 `[B, 1]`."""
        return self.keys.gather(1, self.last)
