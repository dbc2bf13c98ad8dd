"""Hidden states that a batch keeps of models, for other passes to read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specplan.backends.ops.commit import commit
from specplan.backends.ops.tensors.keys import places_of
from specplan.ir.types.value_types import ROOT
from specplan.runtime.masks import prefix


class Drafted(NamedTuple):
    """States of drafted nodes.

    Attributes:
        keys: int64 `[B, M]`.
        live: which of them there are, bool `[B, M]`.
        states: `[B, M, F]`.
        steps: int64 `[B, M]`.
        slots: of the nodes in the cache of their model; None where they are not known.
    """

    keys: Tensor
    live: Tensor
    states: Tensor
    steps: Tensor
    slots: tuple[int, ...] | None = None


class Track:
    """Hidden states at some layers, of text by its position and of drafted nodes by their keys.

    Attributes:
        text: `[B, S + 1, F]`; the last position is that of dead lanes.
        known: bool `[B, S + 1]`, which positions are there.
        steps: passes of its own model that a state went through, int64 `[B, S + 1]`.
        deeper: states of the slots below, level by level; they have gaps.
        drafted: by whether they were scratch.
        at_root: text is read at the root alone, whose state is one of the drafted nodes'.
    """

    PARTS = "hidden", "known", "steps"
    at_root = False

    def __init__(
        self, text: Tensor, known: Tensor, steps: Tensor, deeper: Sequence[Track] = ()
    ) -> None:
        self.text, self.known, self.steps, self.deeper = text, known, steps, tuple(deeper)
        self.begin_round()

    @classmethod
    def empty(
        cls, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, levels: int = 1
    ) -> Track:
        """A track that holds nothing yet, of nodes and of so many levels less one below them."""
        zero = torch.zeros(shape[:2], dtype=torch.int64, device=device)
        deeper = [cls.empty(shape, dtype, device) for _ in range(levels - 1)]
        return cls(_zeros(shape, dtype, device), zero.bool(), zero, deeper)

    @classmethod
    def of_parts(cls, parts: Sequence[Tensor]) -> Track:
        """A track of the tensors that `parts` gave, or of others in their place."""
        levels = [parts[i : i + len(cls.PARTS)] for i in range(0, len(parts), len(cls.PARTS))]
        first, *deeper = (cls(text, known, steps) for text, known, steps in levels)
        first.deeper = tuple(deeper)
        return first

    def parts(self) -> tuple[Tensor, ...]:
        """Its tensors, and those of the levels below in their order."""
        own = self.text, self.known, self.steps
        return (*own, *(part for track in self.deeper for part in track.parts()))

    @property
    def trash(self) -> int:
        """The position of dead lanes."""
        return self.text.shape[1] - 1

    def exchange(self, stay: Sequence[int], new: Track) -> None:
        """Keep some rows, with those of another track behind them."""
        rows = list(stay)
        for name in ("text", "known", "steps"):
            own = getattr(self, name)[rows]
            setattr(self, name, torch.cat([own, getattr(new, name)]))
        for mine, theirs in zip(self.deeper, new.deeper, strict=True):
            mine.exchange(stay, theirs)
        self._forget()

    def begin_round(self) -> None:
        """Forget drafted nodes."""
        self._forget()
        for track in self.deeper:
            track.begin_round()

    def _forget(self) -> None:
        self.drafted: dict[bool, Drafted] = {}

    def read(self, positions: Tensor, keys: Tensor, scratch: bool) -> tuple[Tensor, Tensor, Tensor]:
        """States `[B, T, F]` of tokens, copied, their steps, and which of them are there.

        Args:
            positions: int64 `[B, T]`; what lies before the text is not there.
            keys: int64 `[B, T]`.
            scratch: what passes wrote as scratch is there, too, and counts for more.
        """
        read, steps, known = self.text_at(positions)
        for way in (False, True) if scratch else (False,):
            drafted = self.drafted.get(way)
            if drafted is None or not drafted.keys.shape[1]:
                continue
            slot, here = places_of(keys, drafted.keys, drafted.live)
            states = drafted.states.gather(1, _wide(slot, drafted.states))
            read = torch.where(here[:, :, None], states, read)
            steps = torch.where(here, drafted.steps.gather(1, slot), steps)
            known = known | here
        return read, steps, known

    def read_slots(
        self, slots: Sequence[int], positions: Tensor, scratch: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """The same of nodes whose slots are known, without comparing keys; None where it cannot.

        Args:
            slots: of the nodes; `ROOT` is the root.
            positions: see `read`.
            scratch: see `read`.
        """
        if all(slot == ROOT for slot in slots) and not self.at_root:
            return self.text_at(positions)
        for way in (True, False) if scratch else (False,):
            drafted = self.drafted.get(way)
            if drafted is None:
                continue
            if drafted.slots is None or not set(drafted.slots).issuperset(slots):
                return None
            columns = [drafted.slots.index(slot) for slot in slots]
            first = columns[0]
            if columns == list(range(first, first + len(columns))):
                stop = first + len(columns)
                parts = (drafted.states, drafted.steps, drafted.live)
                states, steps, live = (each[:, first:stop] for each in parts)
                return states, steps, live
            at = torch.tensor(columns, device=positions.device)
            return drafted.states[:, at], drafted.steps[:, at], drafted.live[:, at]
        return None

    def text_at(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States of text, their steps, and which of them are there; see `read`."""
        place = positions.clamp(0, self.trash)
        known = self.known.gather(1, place) & (positions >= 0)
        return self.text.gather(1, _wide(place, self.text)), self.steps.gather(1, place), known

    def write_text(self, positions: Tensor, live: Tensor, states: Tensor, steps: Tensor) -> None:
        """Record states of text for good."""
        place = positions.where(live, self.trash)
        self.text.scatter_(1, place[:, :, None].expand_as(states), states.to(self.text.dtype))
        self.steps.scatter_(1, place, steps)
        self.known.scatter_(1, place, live)

    def write_nodes(
        self,
        keys: Tensor,
        live: Tensor,
        states: Tensor,
        steps: Tensor,
        scratch: bool,
        slots: tuple[int, ...] | None = None,
    ) -> None:
        """Record states of drafted nodes; of one node the latest counts."""
        new = Drafted(keys, live, states, steps, slots)
        if (old := self.drafted.get(scratch)) is not None:
            keys, live, states, steps = (
                torch.cat(pair, 1) for pair in zip(new[:4], old[:4], strict=True)
            )
            known = None if slots is None or old.slots is None else slots + old.slots
            new = Drafted(keys, live, states, steps, known)
        self.drafted[scratch] = new

    def commit(
        self, keys: Tensor, emitted: Tensor, positions: Tensor, in_place: bool = False
    ) -> None:
        """Make the prefix of what was emitted that is here permanent; arguments as of `Cache`.

        With `in_place` that is the beginning of a chain whose nodes stand in slots of their order.
        """
        drafted = self.drafted.get(False)
        count = 0 if drafted is None or self.at_root else drafted.keys.shape[1]
        if drafted is not None and count and in_place and drafted.slots == (*range(count),):
            width = min(count, keys.shape[1])
            there = prefix(emitted[:, :width] & drafted.live[:, :width])
            moved, steps = drafted.states[:, :width], drafted.steps[:, :width]
            self.write_text(positions[:, :width], there, moved, steps)
        elif drafted is not None and count:
            slots, there = commit(keys, emitted, drafted.keys, drafted.live)
            moved = drafted.states.gather(1, _wide(slots, drafted.states))
            self.write_text(positions, there, moved, drafted.steps.gather(1, slots))
        self._forget()

    def commit_deeper(self, positions: Tensor, keys: Tensor, emitted: Tensor) -> None:
        """Make all states of slots below these paths permanent, whatever is missing between."""
        for track in self.deeper:
            drafted = track.drafted.get(False)
            if drafted is not None:
                place, there = places_of(keys, drafted.keys, drafted.live)
                moved = drafted.states.gather(1, _wide(place, drafted.states))
                steps = drafted.steps.gather(1, place)
                track.write_text(positions, there & emitted, moved, steps)
            track.begin_round()


def _wide(places: Tensor, states: Tensor) -> Tensor:
    return places[:, :, None].expand(-1, -1, states.shape[2])


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """As `torch.zeros`, of memory that the system gives as zeros.

    Torch writes large ones with all its threads, which then wait awake for some milliseconds: in
    them a prompt is read, perhaps by the threads of another runtime.
    """
    if device.type != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    memory = np.zeros(prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(memory).view(dtype).view(*shape)
