"""Texts while a round runs: what is written of them, and the op that writes, `emit`."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY, keys_along
from specplan.backends.ops.tensors.values import Path, Tree
from specplan.backends.static.interface import RoundTensors
from specplan.runtime.masks import first_true

_STEP = 0x5851F42D4C957F2D
"""Between the keys of neighbouring places; odd, so that no two are alike."""


class Texts:
    """The texts of a round.

    What a round has to tell apart by keys is of this round: its root has the key of an empty path,
    and tokens of text before it have keys of their places.

    Attributes:
        text: int64 `[B, S + 1]`; the last column is that of dead lanes.
        tracks: hidden states, by name.
        lengths: tokens of each text, int64 `[B]`.
        done: requests that want no more tokens, bool `[B]`.
        appended: tokens `[B, W]`, and how many of them were appended, `[B]`.
        written: positions `[B, W]` of what was emitted, keys, and which of them there are.
    """

    def __init__(self, given: RoundTensors) -> None:
        self.text = given.text
        self.tracks = {
            name: Track(hidden, known, steps)
            for name, (hidden, known, steps) in given.tracks.items()
        }
        self.lengths, self.done = given.lengths, given.done
        self._starts, self._limits, self._stops = given.lengths, given.limits, given.stops
        nothing = self.text[:, :0]
        self.appended = nothing, torch.zeros_like(self.lengths)
        self.written = nothing, nothing, nothing.bool()
        self._emitted: list[tuple[Tensor, Tensor]] = []
        self._root: Tree | None = None

    @property
    def size(self) -> int:
        """Requests."""
        return self.text.shape[0]

    @property
    def ends(self) -> Tensor:
        """Lengths of the texts, int64 `[B, 1]`."""
        return self.lengths[:, None]

    @property
    def last(self) -> Tensor:
        """Positions of the last tokens of the texts, int64 `[B, 1]`."""
        return self.lengths[:, None] - 1

    @property
    def keys(self) -> Tensor:
        """Of the texts up to every token, int64 `[B, S + 1]`."""
        places = torch.arange(self.text.shape[1], device=self.text.device)
        keys_of_text = (places - self._starts[:, None] + 1) * _STEP + FIRST_KEY
        for columns, keys in self._emitted:
            keys_of_text = keys_of_text.scatter(1, columns, keys)
        return keys_of_text

    def root(self, scores: torch.dtype | None) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        if self._root is None:
            last = self.last
            tokens = self.text.gather(1, last)
            keys = self.keys.gather(1, last) if self._emitted else torch.full_like(last, FIRST_KEY)
            self._root = first_tree(tokens, keys, scores)
        return self._root

    def emit(self, path: Path, root: Tree) -> None:
        """Append a path to the texts, cut after the first stop token and at the limit.

        Args:
            path: what was accepted.
            root: of the texts until now.
        """
        place = torch.arange(path.tokens.shape[1], device=path.tokens.device)
        count = path.counts.minimum(self._limits - self.lengths).clamp(min=0)
        stop = (path.tokens[:, :, None] == self._stops[:, None, :]).any(2)
        stop = stop & (place < count[:, None])
        stopped = stop.any(1)
        count = torch.where(stopped, first_true(stop)[:, 0] + 1, count).where(~self.done, 0)
        positions, emitted = self.ends + place, place < count[:, None]
        columns = positions.where(emitted, self.text.shape[1] - 1)
        keys = keys_along(root.keys, path.tokens)
        self.text.scatter_(1, columns, path.tokens)
        self._emitted.append((columns, keys))
        self.lengths = self.lengths + count
        self.done = self.done | stopped | (self.lengths >= self._limits)
        self.appended = path.tokens, count
        self.written, self._root = (positions, keys, emitted), None
