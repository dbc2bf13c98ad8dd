"""Hidden states that a batch keeps of models, for other passes to read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.backends.ops.commit import commit
from specplan.backends.ops.keys import places_of


class Track:
    """Hidden states at some layers, of text by its position and of drafted nodes by their keys.

    Attributes:
        text: `[B, S + 1, F]`; the last position is that of dead lanes.
        known: bool `[B, S + 1]`, which positions are there.
        steps: passes of its own model that a state went through, int64 `[B, S + 1]`.
        deeper: states of the slots below, level by level; they have gaps.
    """

    def __init__(
        self, text: Tensor, known: Tensor, steps: Tensor, deeper: Sequence[Track] = ()
    ) -> None:
        self.text, self.known, self.steps, self.deeper = text, known, steps, tuple(deeper)
        self.begin_round()

    @classmethod
    def empty(cls, text: Tensor, levels: int = 1) -> Track:
        """A track that holds nothing yet, of nodes and of so many levels less one below them."""
        zero = torch.zeros(text.shape[:2], dtype=torch.int64, device=text.device)
        deeper = [cls.empty(torch.zeros_like(text)) for _ in range(levels - 1)]
        return cls(text, zero.bool(), zero, deeper)

    @property
    def trash(self) -> int:
        """The position of dead lanes."""
        return self.text.shape[1] - 1

    def begin_round(self) -> None:
        """Forget drafted nodes."""
        self._forget()
        for track in self.deeper:
            track.begin_round()

    def _forget(self) -> None:
        self.nodes: tuple[Tensor, Tensor, Tensor] | None = None
        self.live: tuple[Tensor, Tensor] | None = None

    def read(self, positions: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States `[B, T, F]` of tokens, copied, their steps, and which of them are there.

        Args:
            positions: int64 `[B, T]`; what lies before the text is not there.
            keys: int64 `[B, T]`.
        """
        place = positions.clamp(0, self.trash)
        known = self.known.gather(1, place) & (positions >= 0)
        found = self.text.gather(1, place[:, :, None].expand(-1, -1, self.text.shape[2]))
        steps = self.steps.gather(1, place)
        if self.nodes is None or self.live is None:
            return found, steps, known
        mine, states, taken = self.nodes
        slot, here = places_of(keys, mine, self.live[0])
        if not mine.shape[1]:
            return found, steps, known
        drafted = states.gather(1, slot[:, :, None].expand(-1, -1, states.shape[2]))
        found = torch.where(here[:, :, None], drafted, found)
        return found, torch.where(here, taken.gather(1, slot), steps), known | here

    def write_text(self, positions: Tensor, live: Tensor, states: Tensor, steps: Tensor) -> None:
        """Record states of text for good."""
        place = positions.where(live, self.trash)
        self.text.scatter_(1, place[:, :, None].expand_as(states), states.to(self.text.dtype))
        self.steps.scatter_(1, place, steps)
        self.known.scatter_(1, place, True)
        self.known[:, self.trash] = False

    def write_nodes(
        self, keys: Tensor, live: Tensor, states: Tensor, steps: Tensor, scratch: bool
    ) -> None:
        """Record states of drafted nodes; of one node the latest counts."""
        exact = torch.zeros_like(live) if scratch else live
        new: tuple[Tensor, ...] = (keys, states, steps)
        if self.nodes is not None and self.live is not None:
            new = tuple(torch.cat(both, 1) for both in zip(new, self.nodes, strict=True))
            live, exact = (
                torch.cat(both, 1) for both in zip((live, exact), self.live, strict=True)
            )
        self.nodes, self.live = (new[0], new[1], new[2]), (live, exact)

    def commit(self, keys: Tensor, emitted: Tensor, positions: Tensor) -> None:
        """Make the prefix of what was emitted that is here permanent; arguments as of `Cache`."""
        if self.nodes is None or self.live is None or not self.nodes[0].shape[1]:
            return
        mine, states, steps = self.nodes
        slots, held = commit(keys, emitted, mine, self.live[1])
        moved = states.gather(1, slots[:, :, None].expand(-1, -1, states.shape[2]))
        self.write_text(positions, held, moved, steps.gather(1, slots))
        self._forget()

    def commit_deeper(self, positions: Tensor, keys: Tensor, said: Tensor) -> None:
        """Make all states of slots below these paths permanent, whatever is missing between."""
        for track in self.deeper:
            if track.nodes is None or track.live is None:
                continue
            mine, states, steps = track.nodes
            place, there = places_of(keys, mine, track.live[1])
            moved = states.gather(1, place[:, :, None].expand(-1, -1, states.shape[2]))
            track.write_text(positions, there & said, moved, steps.gather(1, place))
            track.begin_round()
