"""The tensors that a round reads and writes: a flat list in a fixed order, and names for it.

A compiled round is a function of this list. It writes to the texts, caches and tracks in place and
gives one tensor, so that one transfer tells the host what became of every request.
`specplan.backends.static.functional` has the form that gives what it would write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from specplan.ir.ops import Lookup, Uniform
from specplan.ir.plan import CacheState, Plan, Round, TrackState, walk
from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel

PER_REQUEST = (
    "text", "lengths", "limits", "stops", "done", "temperature", "top_k", "top_p",
    "uniforms", "found", "found_counts",
)  # fmt: skip
KEYS = "keys"
KEYS_PLACE = len(PER_REQUEST)
"""Where the slots attended to stand in the flat list."""


@dataclass(frozen=True)
class RoundTensors:
    """What a round works on.

    Attributes:
        text: int64 `[B, S]`; the last column is that of dead lanes. Written.
        lengths: tokens of each text, int64 `[B]`.
        limits: lengths at which the texts end, int64 `[B]`.
        stops: tokens after which each text ends, int64 `[B, E]`, padded with -1.
        done: requests that want no more tokens, bool `[B]`.
        temperature: float32 `[B]`.
        top_k: int64 `[B]`.
        top_p: float64 `[B]`.
        uniforms: numbers of all `uniform` ops, one after the other, float64 `[B, D]`.
        found: tokens of all `lookup` ops, one after the other, int64 `[B, F]`.
        found_counts: how many of each lookup's tokens were found, int64 `[B, lookups]`.
        keys: the slots attended to, `0 .. U - 1`, int64 `[U]`.
        resident: by cache, the text tokens that it holds, int64 `[B]`.
        stores: by cache, its keys, values and positions. Written.
        tracks: by track, hidden states `[B, S, hidden]`. Written.
    """

    text: Tensor
    lengths: Tensor
    limits: Tensor
    stops: Tensor
    done: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    uniforms: Tensor
    found: Tensor
    found_counts: Tensor
    keys: Tensor
    resident: Mapping[str, Tensor]
    stores: Mapping[str, KVCache]
    tracks: Mapping[str, Tensor]

    def flat(self) -> list[Tensor]:
        """All of them, in the order of `Interface.read`."""
        found = [getattr(self, name) for name in (*PER_REQUEST, KEYS)]
        for name, store in self.stores.items():
            found += [self.resident[name], store.positions, *store.keys, *store.values]
        return [*found, *self.tracks.values()]

    def written(self) -> list[Tensor]:
        """What a round writes, in the order of `Interface.written`."""
        found = [self.text]
        for store in self.stores.values():
            found += [store.positions, *store.keys, *store.values]
        return [*found, *self.tracks.values()]


@dataclass(frozen=True)
class Interface:
    """The order of a plan's tensors.

    Attributes:
        caches: name and layers of each.
        tracks: names.
    """

    caches: tuple[tuple[str, int], ...]
    tracks: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, models: Mapping[str, CausalModel]) -> Interface:
        """The interface that all rounds of a plan share."""
        return cls(
            tuple(
                (state.name, models[state.model].num_layers)
                for state in plan.states
                if isinstance(state, CacheState)
            ),
            tuple(state.name for state in plan.states if isinstance(state, TrackState)),
        )

    def names(self) -> list[str]:
        """A name for each tensor of the flat list."""
        found = [*PER_REQUEST, KEYS]
        for name, layers in self.caches:
            found += [f"{name}.resident", *_stored(name, layers)]
        return [*found, *(f"{name}.hidden" for name in self.tracks)]

    def written(self) -> list[str]:
        """Names of those that a round writes."""
        stored = [part for name, layers in self.caches for part in _stored(name, layers)]
        return ["text", *stored, *(f"{name}.hidden" for name in self.tracks)]

    def read(self, tensors: Sequence[Tensor]) -> RoundTensors:
        """The tensors of a flat list by their names."""
        left = list(tensors)

        def take(count: int) -> list[Tensor]:
            taken, left[:] = left[:count], left[count:]
            return taken

        fixed = dict(zip((*PER_REQUEST, KEYS), take(len(PER_REQUEST) + 1), strict=True))
        resident, stores = {}, {}
        for name, layers in self.caches:
            resident[name], positions = take(2)
            stores[name] = KVCache(take(layers), take(layers), positions)
        tracks = dict(zip(self.tracks, take(len(self.tracks)), strict=True))
        return RoundTensors(**fixed, resident=resident, stores=stores, tracks=tracks)


@dataclass(frozen=True)
class HostInputs:
    """What the host computes for a round before it runs: numbers drawn, tokens looked up.

    Attributes:
        uniforms: each `uniform` op and its first column.
        lookups: each `lookup` op and its first column.
    """

    uniforms: tuple[tuple[Uniform, int], ...]
    lookups: tuple[tuple[Lookup, int], ...]

    @classmethod
    def of(cls, item: Round) -> HostInputs:
        """Those of a round without loops."""
        uniforms: list[tuple[Uniform, int]] = []
        lookups: list[tuple[Lookup, int]] = []
        drawn = found = 0
        for op in walk(item.ops):
            if isinstance(op, Uniform):
                uniforms.append((op, drawn))
                drawn += op.count
            elif isinstance(op, Lookup):
                lookups.append((op, found))
                found += op.length
        return cls(tuple(uniforms), tuple(lookups))


def _stored(name: str, layers: int) -> list[str]:
    parts = (f"{name}.{part}.{layer}" for part in ("keys", "values") for layer in range(layers))
    return [f"{name}.positions", *parts]


def free_sizes(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Which sizes of a flat list a compiled round leaves free: how many slots are attended to."""
    free: list[Any] = [None] * len(tensors)
    free[KEYS_PLACE] = {0: Dim("used", min=2, max=tensors[0].shape[1] - 1)}
    return tuple(free)


def packed(tokens: Tensor, counts: Tensor, done: Tensor, resident: Mapping[str, Tensor]) -> Tensor:
    """What a round tells the host, int64 `[B, W + 2 + caches]`."""
    columns = [tokens, counts[:, None], done.long()[:, None]]
    return torch.cat([*columns, *(held[:, None] for held in resident.values())], 1)
