"""Key and value tensors of one model for one batch, addressed by slot.

One tensor per layer for K and one for V: a single stacked tensor makes compilers copy the whole
cache in every layer. Slots carry no meaning of their own: the mask decides which slots a token
attends to, and `positions` has the position of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from specplan.runtime.models.attention import Additions, summed_by_head
from specplan.runtime.models.cache_parts.number_types import rounded, widened

if TYPE_CHECKING:
    from specplan.runtime.images.inputs import ImageInputs


MOST_REUSED = 64 * 2**20
"""Bytes of a cache that waits for the next batch: getting more takes little beside filling it."""


class KVCache:
    """Keys, values and positions of every slot.

    Attributes:
        keys: per layer, `[B, H_kv, S, head_dim]`; see `cache_parts/number_types.py` for types other
            than the model's.
        values: per layer, `[B, H_kv, S, head_dim]`.
        positions: int64 `[B, S]`, the position whose key and value each slot has.
        queries: per layer, `[B, H_kv, head_dim]`, the queries of the latest text token, summed
            over the query heads of each key/value head. None if they are not stored.
        images: those of the rows' prompts, as its model reads them; None for none.
        batch: rows, B.
        capacity: usable slots per row; S = capacity + 1.
        trash: the last slot, to which dead lanes write; its content is never read.
    """

    queries: list[Tensor] | None = None
    images: ImageInputs | None = None
    _room: list[Tensor] | None = None
    functional = False
    """Its tensors are replaced, never written to."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], positions: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.positions = positions
        self.batch = positions.shape[0]
        self.capacity = positions.shape[1] - 1
        self.trash = self.capacity
        self._rows = torch.arange(self.batch, device=positions.device)[:, None]

    @property
    def reusable(self) -> bool:
        """Whether it may wait for another batch to write over it: on the host, and small."""
        if type(self) is not KVCache or self.queries is not None or not self.positions.is_cpu:
            return False
        return sum(one.nbytes for one in (*self.keys, *self.values)) <= MOST_REUSED

    @classmethod
    def empty(
        cls,
        *,
        batch: int,
        capacity: int,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        queries: bool = False,
        query_dtype: torch.dtype | None = None,
    ) -> Self:
        """A cache of `capacity` usable slots per row, and one trash slot; with `queries` or not.

        These are in `query_dtype`, by default in that of keys and values.
        """
        shape = (batch, num_kv_heads, capacity + 1, head_dim)

        # Zeros, not empty: a masked slot has weight 0, and 0 times an uninitialised NaN is NaN.
        def layers() -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]

        positions = torch.zeros(batch, capacity + 1, dtype=torch.int64, device=device)
        made = cls(layers(), layers(), positions)
        if queries:
            size, kind = (batch, num_kv_heads, head_dim), query_dtype or dtype
            made.queries = [layer.new_zeros(size, dtype=kind) for layer in made.keys]
        return made

    def exchange(self, stay: Sequence[int], new: int, begin: Mapping[int, int]) -> None:
        """Keep some rows, moved to the front, and make room for new ones behind them.

        Tensors have room for more rows than are in use: no row is copied that need not move.

        Args:
            stay: rows that stay, rising.
            new: rows that come.
            begin: for some of these, by number, the former row whose content they begin with.
        """
        size = len(stay) + new
        rest = [*self.others(), *(self.queries or ())]
        room = self._room or [*self.keys, *self.values, self.positions, *rest]
        if size > room[0].shape[0]:
            more = max(size, 2 * room[0].shape[0]) - room[0].shape[0]
            room = [torch.cat([one, one.new_zeros(more, *one.shape[1:])]) for one in room]
        goals = [place for place, row in enumerate(stay) if place != row]
        sources = [*(stay[place] for place in goals), *begin.values()]
        goals += [len(stay) + number for number in begin]
        for one in room if goals else ():
            one[goals] = one[sources]
        layers, used = len(self.keys), [one[:size] for one in room]
        self._room = room
        self.keys, self.values = used[:layers], used[layers : 2 * layers]
        self.positions = used[2 * layers]
        more = 2 * layers + 1
        self.set_others(used[more : more + len(self.others())])
        if self.queries is not None:
            self.queries = used[more + len(self.others()) :]
        self.batch = size
        self._rows = torch.arange(size, device=self.positions.device)[:, None]

    def bound_states(self, nodes: int) -> None:
        """Store recurrent states of no more than so many drafted nodes; here there are none."""

    def others(self) -> list[Tensor]:
        """Further tensors `[B, ...]`, beside keys, values, positions and queries."""
        return []

    def set_others(self, tensors: Sequence[Tensor]) -> None:
        """Replace them."""

    def move(self, source: Tensor, destination: Tensor, live: Tensor | None = None) -> None:
        """Copy slots to other slots of the same row, in all layers; reads all, then writes.

        Args:
            source: int64 `[B, M]`, slots to read.
            destination: int64 `[B, M]`, slots to write; distinct within a row where live.
            live: bool `[B, M]`; dead lanes touch only the trash slot. All live when None.
        """
        if live is not None:
            source = source.where(live, self.trash)
            destination = destination.where(live, self.trash)
        if self.batch == 1:
            self._move_one_row(source[0], destination[0])
            return
        rows = self._rows
        for tensor in [*self.keys, *self.values]:
            tensor[rows, :, destination] = tensor[rows, :, source]
        self.positions[rows, destination] = self.positions[rows, source]

    def copy(self, other: KVCache, source: Tensor, destination: Tensor) -> None:
        """Copy slots of another cache of the same model and batch, in all layers.

        Args:
            other: the cache to read.
            source: int64 `[B, M]`, its slots.
            destination: int64 `[B, M]`, slots to write here; distinct but for the trash slot.
        """
        rows = self._rows
        mine, theirs = [*self.keys, *self.values], [*other.keys, *other.values]
        for into, source_tensor in zip(mine, theirs, strict=True):
            into[rows, :, destination] = source_tensor[rows, :, source]
        self.positions[rows, destination] = other.positions[rows, source]

    def swap(self, slots: Tensor, layers: Sequence[int], other: Sequence[Tensor]) -> list[Tensor]:
        """Write other keys and values into slots; returns the former ones.

        Args:
            slots: int64 `[B, M]`; distinct but for the trash slot.
            layers: layers to write.
            other: keys and values of each, `[B, M, H_kv, head_dim]`; none to change nothing.
        """
        tensors = [tensor for layer in layers for tensor in (self.keys[layer], self.values[layer])]
        before = [tensor[self._rows, :, slots] for tensor in tensors]
        for tensor, new in zip(tensors, other, strict=False):
            tensor[self._rows, :, slots] = new
        return before

    def _move_one_row(self, source: Tensor, destination: Tensor) -> None:
        for tensor in [*self.keys, *self.values]:
            tensor.index_copy_(2, destination, tensor.index_select(2, source))
        self.positions.index_copy_(1, destination, self.positions.index_select(1, source))

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        """A view through which one forward pass writes `slots` and reads the first `used` slots."""
        return CacheWriter(self, positions, slots, used)


class CacheWriter:
    """The `past_key_values` of `transformers` layers during one forward pass.

    Args:
        cache: the storage.
        positions: int64 `[B, T]`, positions of the incoming tokens.
        slots: int64 `[B, T]`, their slots.
        used: slots 0..used-1 take part in attention.

    Attributes:
        rotate_and_store: a kernel, if there is one, for all that rotary layers do before
            attention: from queries, keys and values `[B, T, H + 2 H_kv, D]`, cosines and sines as
            `RotaryLayer` has them and the layer to turned queries `[B, H, T, D]` and what `update`
            returns.
        latest: int64 `[B]`, the incoming token that is the latest of each row's text, whose
            queries the cache stores; negative for none in this row, None for none in any row.
        additions: what the pass adds to projections of rotary layers.
    """

    latest: Tensor | None = None
    additions: Additions | None = None
    rotate_and_store: (
        Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor]] | None
    ) = None

    def __init__(self, cache: KVCache, positions: Tensor, slots: Tensor, used: int) -> None:
        self.cache = cache
        self.used = used
        self.slots = slots
        known = slots.device.type == "cpu" and not torch.compiler.is_compiling()
        self.first = contiguous_start(slots) if known else -1
        count = slots.shape[1]
        self.stop = self.first + count
        if self.first >= 0:
            cache.positions[:, self.first : self.stop] = positions
        elif cache.batch == 1:
            self.slots = slots[0]
            cache.positions[0, self.slots] = positions[0]
        else:
            cache.positions.scatter_(1, slots, positions)

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write `[B, H_kv, T, head_dim]` keys and values; return those of the used slots."""
        cache = self.cache
        both = cache.keys[layer_idx], cache.values[layer_idx]
        for every, new in zip(both, (keys, values), strict=True):
            stored = rounded(new, every.dtype)
            if self.first >= 0:
                every[:, :, self.first : self.stop] = stored
            elif cache.batch == 1:
                every.index_copy_(2, self.slots, stored)
            else:
                every[cache._rows, :, self.slots] = stored.transpose(1, 2)
        return self.read(*both, keys.dtype)

    def read(self, keys: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The used slots of a layer's keys and values, as a model of this number type has them."""
        used = self.used
        return widened(keys[:, :, :used], dtype), widened(values[:, :, :used], dtype)

    def follow(self, mask: object, latest: Tensor | None) -> None:
        """Note the latest text tokens; recurrent layers go on from what the pass's mask tells."""
        self.latest = latest

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """Store the queries of the latest text tokens, if the cache stores any.

        Args:
            queries: `[B, H, T, head_dim]`, as keys are multiplied with them.
            layer_idx: the layer.
        """
        if self.latest is None or self.cache.queries is None:
            return
        former = self.cache.queries[layer_idx]
        column = self.latest.clamp(min=0)[:, None, None, None]
        asked = queries.gather(2, column.expand(-1, queries.shape[1], 1, queries.shape[3]))
        asked = summed_by_head(asked, former.shape[1])[:, :, 0]
        self.cache.queries[layer_idx] = torch.where(self.latest[:, None, None] >= 0, asked, former)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots in use; part of the interface of `transformers` caches."""
        return self.used

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys; part of the interface of `transformers` caches."""
        return self.used, 0


def contiguous_start(slots: Tensor) -> int:
    """First slot when all rows write the same consecutive slots, else -1. Reads the tensor."""
    first, *others = slots.tolist()
    start = first[0]
    if first != list(range(start, start + len(first))) or any(row != first for row in others):
        return -1
    return int(start)
