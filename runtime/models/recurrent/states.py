"""States of recurrent layers, one for each of the latest slots of a cache.

A recurrent layer goes on from the state that the token before left. To go back after a rejection,
and to branch at any node of a tree, the state of every drafted node stays until the round ends:
going back takes no computation ("snapshot"). States of slots further back than `bound_states` said
are written over: nothing goes on from them.

Or no state of a drafted node outlives the layer that computes it ("replay"): a pass starts at the
one state that is stored, and runs what was accepted once more before it runs new drafts (The Mamba
in the Llama, arXiv 2408.15237, section 4.2: in one kernel on a GPU, layer by layer here).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.kv_cache import CacheWriter, KVCache

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the state tensors of a layer, without batch; empty for a layer without a state."""
SPARE = 3
"""States beside those of drafted nodes: of the last token of the text, of the root, and of the
token before it, from which the root runs again."""


class RecurrentCache(KVCache):
    """Keys and values of the layers that attend, and states of those that are recurrent.

    The state of slot s is in place s modulo `places`; the trash slot has a place of its own.

    Attributes:
        states: per layer, its state tensors `[B, places + 1, ...]`.
        places: states that are stored.
        texts: slots from which on drafted nodes stand, int64 `[B, 1]`, whose states are not stored;
            None where they are.
        passing: states of drafted nodes do not outlive the pass that runs them.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], positions: Tensor) -> None:
        super().__init__(keys, values, positions)
        self.states: list[list[Tensor]] = []
        self.places = self.capacity
        self.texts: Tensor | None = None
        self.passing = False

    def add_states(
        self, shapes: Sequence[Shapes], dtype: torch.dtype, keyless: Collection[int]
    ) -> None:
        """Begin without any text.

        Args:
            shapes: of each layer.
            dtype: of the states.
            keyless: layers that have no keys and values.
        """
        for layer in keyless:
            for tensors in (self.keys, self.values):
                tensors[layer] = tensors[layer][..., :0].clone()
        size, device = (self.batch, self.places + 1), self.positions.device
        self.states = [
            [torch.zeros(*size, *one, dtype=dtype, device=device) for one in layer]
            for layer in shapes
        ]

    def bound_states(self, nodes: int) -> None:
        """See `KVCache.bound_states`; with 0 none of a drafted node outlives its pass."""
        self.passing = not nodes
        self.places = min(nodes + SPARE, self.capacity)
        size = self.places + 1
        self.states = [[one[:, :size].clone() for one in layer] for layer in self.states]

    def drafts_from(self, texts: Sequence[int]) -> None:
        """Note from which slots on drafted nodes stand, by row."""
        if self.passing:
            self.texts = torch.tensor(texts, device=self.positions.device)[:, None]

    def place(self, slots: Tensor) -> Tensor:
        """Where the states of slots are."""
        return (slots % self.places).where(slots != self.trash, self.places)

    def others(self) -> list[Tensor]:
        """See `KVCache.others`."""
        return [one for layer in self.states for one in layer]

    def set_others(self, tensors: Sequence[Tensor]) -> None:
        """See `KVCache.set_others`."""
        left = iter(tensors)
        self.states = [[next(left) for _ in layer] for layer in self.states]

    def move(self, source: Tensor, destination: Tensor, live: Tensor | None = None) -> None:
        """See `KVCache.move`."""
        super().move(source, destination, live)
        if live is not None:
            source = source.where(live, self.trash)
            destination = destination.where(live, self.trash)
        source, destination, rows = self.place(source), self.place(destination), self._rows
        for one in self.others():
            one[rows, destination] = one[rows, source]

    def copy(self, other: KVCache, source: Tensor, destination: Tensor) -> None:
        """See `KVCache.copy`: a state cannot be copied in part.

        Raises:
            MissingCapabilityError: always.
        """
        raise MissingCapabilityError(
            "a recurrent state is of all text, and a view holds a part of it",
            where="eager",
            remedy="Declare the cache without view= and policy=.",
        )

    def swap(self, slots: Tensor, layers: Sequence[int], other: Sequence[Tensor]) -> list[Tensor]:
        """See `KVCache.swap`; states come behind keys and values."""
        attended = 2 * len(layers)
        before = super().swap(slots, layers, other[:attended])
        states = [one for layer in layers for one in self.states[layer]]
        places = self.place(slots)
        before += [one[self._rows, places] for one in states]
        for one, new in zip(states, other[attended:], strict=False):
            one[self._rows, places] = new
        return before

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> RecurrentWriter:
        """See `KVCache.writer`."""
        return RecurrentWriter(self, positions, slots, used)


class RecurrentWriter(CacheWriter):
    """A writer through which recurrent layers read the states of their tokens' parents too.

    The parent of a token is the one that it attends to at the position before its own.
    """

    cache: RecurrentCache

    def __init__(self, cache: RecurrentCache, positions: Tensor, slots: Tensor, used: int) -> None:
        super().__init__(cache, positions, slots, used)
        self._positions, self._places = positions, cache.place(slots)
        self._slots, self._passing = slots, False
        if cache.texts is not None:
            drafted = (slots >= cache.texts) & (slots != cache.trash)
            self._passing = bool(drafted.any())
            self._places = self._places.where(~drafted, cache.places)

    def follow(self, mask: object, latest: Tensor | None) -> None:
        """See `CacheWriter.follow`: note the parents of the pass's tokens."""
        super().follow(mask, latest)
        assert isinstance(mask, Tensor), "no kernel has recurrent layers"
        cache, positions = self.cache, self._positions
        above = cache.positions[:, None, : mask.shape[2]] == positions[:, :, None] - 1
        parents = mask & above
        above_slots = parents.long().argmax(2)
        self._parents, self._rooted = cache.place(above_slots), parents.any(2)
        if self._passing:
            assert cache.texts is not None, "only then nodes pass"
            self._beside = above_slots >= cache.texts
            same = self._slots[:, None, :] == above_slots[:, :, None]
            self._columns_above = same.long().argmax(2)
        # parents first, wherever a tree has its nodes
        self._order = positions.argsort(dim=1, stable=True)

    def recur(
        self, layer: int, inputs: Tensor, step: Callable[[Tensor, list[Tensor]], Tensor]
    ) -> Tensor:
        """Run a recurrence over the tokens of the pass.

        Args:
            layer: whose states they are.
            inputs: `[B, T, F]`.
            step: from inputs of one token of each row, `[B, F]`, and its parent's states, each
                `[B, ...]`, which it changes in place into its own, to its outputs `[B, G]`.

        Returns:
            `[B, T, G]`.
        """
        stored, rows = self.cache.states[layer], self.cache._rows[:, 0]
        outputs: Tensor | None = None
        passing = [
            one.new_zeros(*inputs.shape[:2], *one.shape[2:]) for one in stored if self._passing
        ]
        for column in self._columns():
            states = self._above(stored, passing, rows, column)
            output = step(inputs[rows, column], states)
            place = self._places[rows, column]
            for one, new in zip(stored, states, strict=True):
                one[rows, place] = new.to(one.dtype)
            for one, new in zip(passing, states, strict=False):
                one[rows, column] = new.to(one.dtype)
            if outputs is None:
                outputs = output.new_empty(*inputs.shape[:2], output.shape[1])
            outputs[rows, column] = output
        assert outputs is not None, "a pass has tokens"
        return outputs

    def _above(
        self, stored: list[Tensor], passing: list[Tensor], rows: Tensor, column: Tensor
    ) -> list[Tensor]:
        """States of the parents of one token of each row; zeros where a text begins.

        Args:
            stored: states by place, each `[B, places + 1, ...]`.
            passing: states of this pass's tokens, each `[B, T, ...]`; empty where all are stored.
            rows: int64 `[B]`.
            column: of each row the token, int64 `[B]`.
        """
        parents, rooted = self._parents[rows, column], self._rooted[rows, column]
        states = [one[rows, parents] for one in stored]
        if passing:
            beside, above = self._beside[rows, column], self._columns_above[rows, column]
            states = [
                new[rows, above].where(_wide(beside, one), one)
                for new, one in zip(passing, states, strict=True)
            ]
        return [one * _wide(rooted, one) for one in states]

    def _columns(self) -> Iterator[Tensor]:
        """Of each row the token that runs next, int64 `[B]`."""
        return iter(self._order.unbind(1))


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    """One flag per row, `[B]`, as wide as states of each, `[B, ...]`."""
    return flags.view(-1, *[1] * (like.dim() - 1))


def recurrent(writer: CacheWriter, layer: int) -> RecurrentWriter:
    """A writer whose cache has states.

    Raises:
        MissingCapabilityError: it has none, as where models are trained on.
    """
    if isinstance(writer, RecurrentWriter):
        return writer
    raise MissingCapabilityError(
        "recurrent layers run only where a cache keeps their states",
        where=f"layer {layer}",
        remedy="Decode with the backend eager; such models are not trained on here.",
    )
