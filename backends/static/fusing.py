"""The parts of a round that are kernels of our own, where its models are on a device for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch
from torch import Tensor

from specplan.backends.kernels import ops
from specplan.backends.kernels.fused_parts import NOTHING, Fused, Heads
from specplan.backends.ops.accept import Form
from specplan.runtime.acceptance import RULES, Judged
from specplan.runtime.models.attention import PrefixMask
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import CacheWriter, KVCache
from specplan.runtime.models.modules import Module


def heads_of(model: CausalModel) -> Heads:
    """What kernels depend on of a loaded model."""
    family = model.family
    return Heads(
        queries=family.heads,
        kv_heads=family.kv_heads,
        size=family.head_dim,
        dtype=str(model.dtype).removeprefix("torch."),
        windowed=any(window is not None for window in family.windows),
    )


def fused_for(models: Mapping[str, Module], devices: Collection[str]) -> Fused:
    """The parts that have kernels, where the models are on one of these kinds of device."""
    if any(model.device.type not in devices for model in models.values()):
        return NOTHING
    causal = {
        name: model
        for name, model in models.items()
        if isinstance(model, CausalModel) and model.cache_dtype == model.dtype
    }
    return Fused.of({name: heads_of(model) for name, model in causal.items()})


def form_by(fused: Fused) -> Form:
    """Rules as kernels, and those that have none in tensor ops."""

    def form(rule: str) -> Callable[..., Judged]:
        if rule in fused.rules:
            return partial(ops.accept, rule)
        return RULES[rule].accept_vectorised  # type: ignore[no-any-return]

    return form


def kernel_mask(prefix: Tensor, seen: Tensor) -> PrefixMask:
    """A mask whose attention is a kernel."""
    return PrefixMask(prefix, seen, _attend)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, seen: Tensor, scale: float
) -> Tensor:
    mixed: Tensor = ops.tree_attention(query, keys, values, prefix, seen, None, scale)
    return mixed


class FusedCache(KVCache):
    """A cache in which slots are moved by one kernel.

    Args:
        cache: whose tensors it holds.
        attended: attention to it is a kernel too, and so is what rotary layers do before.
    """

    def __init__(self, cache: KVCache, attended: bool) -> None:
        super().__init__(cache.keys, cache.values, cache.positions)
        self.attended = attended

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        """See `KVCache.writer`."""
        kind = FusedWriter if self.attended else CacheWriter
        return kind(self, positions, slots, used)

    def move(self, source: Tensor, destination: Tensor, live: Tensor | None = None) -> None:
        """See `KVCache.move`; dead lanes touch nothing but the trash slot's position."""
        live = torch.ones_like(source, dtype=torch.bool) if live is None else live
        ops.move_slots([*self.keys, *self.values], source, destination, live)
        moved = self.positions.gather(1, source.where(live, self.trash))
        self.positions.scatter_(1, destination.where(live, self.trash), moved)


class FusedWriter(CacheWriter):
    """One pass whose rotary layers write to the cache by a kernel; see `CacheWriter`."""

    def __init__(self, cache: KVCache, positions: Tensor, slots: Tensor, used: int) -> None:
        super().__init__(cache, positions, slots, used)
        self._slots = slots.contiguous()
        self.rotate_and_store = self._rotate_and_store

    def _rotate_and_store(
        self, joined: Tensor, cos: Tensor, sin: Tensor, layer_idx: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = self.cache.keys[layer_idx], self.cache.values[layer_idx]
        query = ops.rotate_and_store(joined, cos, sin, self._slots, keys, values)
        return query, keys[:, :, : self.used], values[:, :, : self.used]
