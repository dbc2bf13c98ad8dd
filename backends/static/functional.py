"""A round that writes none of its tensors: caches come in, and come out as they are afterwards.

For compilers of graphs in which nothing can be written. Writes to a cache are writes of whole
heads by (row, head, slot), which such graphs have an op for; whoever runs the graph may give it the
same memory for what comes in and what goes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from specplan.backends.static.graph import RoundGraph
from specplan.runtime.models.cache_parts.number_types import rounded
from specplan.runtime.models.kv_cache import CacheWriter, KVCache


class FunctionalRound(nn.Module):
    """A round without effects.

    Args:
        graph: the round that writes in place.
        flat: caches are written by lists of places, as `FlatCache` does.
    """

    def __init__(self, graph: RoundGraph, *, flat: bool = False) -> None:
        super().__init__()
        self.graph = graph
        self._cache = FlatCache if flat else FunctionalCache

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the round.

        Args:
            tensors: as `Interface.read` names them.

        Returns:
            The round's report (`interface.report`), and then what it would write, as
            `Interface.written` names it.
        """
        given = self.graph.interface.read(tensors)
        given = replace(
            given,
            text=given.text.clone(),
            stores={name: self._cache(store) for name, store in given.stores.items()},
            tracks=_copied(given.tracks),
            values=_copied(given.values),
        )
        report, interface = self.graph.run(given), self.graph.interface
        after = dict(zip(interface.names(), given.flat(), strict=True))
        return report, *(after[name] for name in interface.written())


def _copied(states: Mapping[str, tuple[Tensor, ...]]) -> dict[str, tuple[Tensor, ...]]:
    return {name: tuple(part.clone() for part in parts) for name, parts in states.items()}


class FunctionalCache(KVCache):
    """A cache whose tensors are replaced, never written to.

    Args:
        cache: whose tensors it begins with.
    """

    functional = True

    def __init__(self, cache: KVCache) -> None:
        super().__init__(list(cache.keys), list(cache.values), cache.positions)

    def places(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, head and slot of every head of slots `[B, T]`, int64 `[B, H_kv, T]` each."""
        heads = torch.arange(self.keys[0].shape[1], device=slots.device)
        shape = (self.batch, len(heads), slots.shape[1])
        rows = self._rows[:, :, None].expand(shape)
        return rows, heads[None, :, None].expand(shape), slots[:, None].expand(shape)

    def get(self, tensor: Tensor, places: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Heads at places, `[B, H_kv, T, head_dim]`."""
        return tensor[places]

    def put(self, tensor: Tensor, places: tuple[Tensor, Tensor, Tensor], new: Tensor) -> Tensor:
        """A tensor with heads `[B, H_kv, T, head_dim]` at places."""
        return tensor.index_put(places, new)

    def move(self, source: Tensor, destination: Tensor, live: Tensor | None = None) -> None:
        """See `KVCache.move`."""
        if live is not None:
            source = source.where(live, self.trash)
            destination = destination.where(live, self.trash)
        read, write = self.places(source), self.places(destination)
        for layers in (self.keys, self.values):
            layers[:] = [self.put(tensor, write, self.get(tensor, read)) for tensor in layers]
        moved = self.positions.gather(1, source)
        self.positions = self.positions.scatter(1, destination, moved)

    def swap(self, slots: Tensor, layers: Sequence[int], other: Sequence[Tensor]) -> list[Tensor]:
        """See `KVCache.swap`; keys and values are `[B, H_kv, M, head_dim]`."""
        places = self.places(slots)
        tensors = [(kind, layer) for layer in layers for kind in (self.keys, self.values)]
        before = [self.get(kind[layer], places) for kind, layer in tensors]
        for (kind, layer), new in zip(tensors, other, strict=False):
            kind[layer] = self.put(kind[layer], places, new)
        return before

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        """See `KVCache.writer`."""
        return _FunctionalWriter(self, positions, slots, used)


class FlatCache(FunctionalCache):
    """The same, for compilers that know places as lists of rows, heads and slots only."""

    def get(self, tensor: Tensor, places: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """See `FunctionalCache.get`."""
        rows, heads, slots = (one.flatten() for one in places)
        return tensor[rows, heads, slots].reshape(*places[0].shape, -1)

    def put(self, tensor: Tensor, places: tuple[Tensor, Tensor, Tensor], new: Tensor) -> Tensor:
        """See `FunctionalCache.put`."""
        flat = tuple(one.flatten() for one in places)
        return tensor.index_put(flat, new.flatten(0, 2))


class _FunctionalWriter(CacheWriter):
    """One pass over a functional cache."""

    def __init__(self, cache: FunctionalCache, positions: Tensor, slots: Tensor, used: int) -> None:
        self.cache = self._own = cache
        self.used = used
        self._places = cache.places(slots)
        cache.positions = cache.positions.scatter(1, slots, positions)

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """See `CacheWriter.update`."""
        cache = self._own
        for tensors, new in ((cache.keys, keys), (cache.values, values)):
            every = tensors[layer_idx]
            new = rounded(new, every.dtype)
            tensors[layer_idx] = cache.put(every, self._places, new)
        return self.read(cache.keys[layer_idx], cache.values[layer_idx], keys.dtype)
