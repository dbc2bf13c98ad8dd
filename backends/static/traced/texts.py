"""Texts while a round runs: what is written of them, and the op that writes, `emit`."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.eager.state.texts import Texts
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.tensors.keys import FIRST_KEY, keys_along
from specplan.backends.ops.tensors.values import Path
from specplan.backends.static.interface import RoundTensors
from specplan.runtime.masks import first_true
from specplan.runtime.sampling import SamplingSettings

_STEP = 0x5851F42D4C957F2D
"""Between the keys of neighbouring places; odd, so that no two are alike."""


class RoundTexts(Texts):
    """The texts of a round.

    What a round has to tell apart by keys is of this round: its root has the key of an empty path,
    and tokens of text before it have keys of their places.

    Attributes:
        lengths: tokens of each text, int64 `[B]`.
        done: requests that want no more tokens, bool `[B]`.
        appended: tokens `[B, W]`, and how many of them were appended, `[B]`.
    """

    def __init__(self, given: RoundTensors, settings: SamplingSettings) -> None:
        self.text, self.settings = given.text, settings
        self.tracks = {name: Track.of_parts(parts) for name, parts in given.tracks.items()}
        self._reach(given.lengths)
        self.done = given.done
        self._starts, self._limits, self._stops = given.lengths, given.limits, given.stops
        nothing = self.text[:, :0]
        self.appended = nothing, torch.zeros_like(self.lengths)
        self.written = nothing, nothing, nothing.bool()
        self._emitted: list[tuple[Tensor, Tensor]] = []

    def _reach(self, lengths: Tensor) -> None:
        self.lengths, self.ends, self._root = lengths, lengths[:, None], None
        self.last = self.ends - 1

    @property
    def keys(self) -> Tensor:  # type: ignore[override]
        """See `Texts`."""
        places = torch.arange(self.text.shape[1], device=self.text.device)
        keys_of_text = (places - self._starts[:, None] + 1) * _STEP + FIRST_KEY
        for columns, keys in self._emitted:
            keys_of_text = keys_of_text.scatter(1, columns, keys)
        return keys_of_text

    def last_keys(self) -> Tensor:
        """See `Texts`; a root that no token follows has the first key."""
        return super().last_keys() if self._emitted else torch.full_like(self.last, FIRST_KEY)

    def since_root(
        self, positions: Tensor, keys: Tensor, there: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What was emitted, with the round's root before it."""
        root = self._starts[:, None] - 1
        key, always = torch.full_like(root, FIRST_KEY), torch.ones_like(root, dtype=torch.bool)
        return (
            torch.cat([root, positions], 1),
            torch.cat([key, keys], 1),
            torch.cat([always, there], 1),
        )

    def emit(self, path: Path) -> None:
        """Append a path to the texts, cut after the first stop token and at the limit."""
        place = torch.arange(path.tokens.shape[1], device=path.tokens.device)
        count = path.counts.minimum(self._limits - self.lengths).clamp(min=0)
        stop = (path.tokens[:, :, None] == self._stops[:, None, :]).any(2)
        stop = stop & (place < count[:, None])
        stopped = stop.any(1)
        count = torch.where(stopped, first_true(stop)[:, 0] + 1, count).where(~self.done, 0)
        positions, emitted = self.ends + place, place < count[:, None]
        columns = positions.where(emitted, self.text.shape[1] - 1)
        keys = keys_along(self.last_keys(), path.tokens)
        self.text.scatter_(1, columns, path.tokens)
        self._emitted.append((columns, keys))
        self._reach(self.lengths + count)
        self.done = self.done | stopped | (self.lengths >= self._limits)
        self.appended = path.tokens, count
        self.written = positions, keys, emitted
