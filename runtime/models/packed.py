"""A pass without its padding: the columns of all rows that run, one after another."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.attention import PackedMask, Packing
from specplan.runtime.models.cache_parts.number_types import rounded
from specplan.runtime.models.causal import CausalModel, near
from specplan.runtime.models.kv_cache import CacheWriter, KVCache


@dataclass(frozen=True)
class PackedColumns:
    """Columns of a padded pass, and which of them run; see `CausalModel.hidden`.

    Attributes:
        tokens: int64 `[B, T]`.
        positions: int64 `[B, T]`.
        slots: int64 `[B, T]`.
        mask: bool `[B, T, U]`.
        packing: those that run.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    mask: Tensor
    packing: Packing


def hidden_of_pack(
    model: CausalModel,
    columns: PackedColumns,
    cache: KVCache,
    layers: tuple[int, int] | None = None,
    features: Tensor | None = None,
    skips: Skips = NO_SKIPS,
) -> Tensor:
    """`CausalModel.hidden` of the columns that run; `[B, T, hidden]`, zeros in the others."""
    packing, positions = columns.packing, columns.positions.clamp(min=0)
    own, of_own, mask = packing.of_columns, packing.of_columns(positions), columns.mask
    rows = packing.columns // packing.shape[1]
    writer = PackedWriter(cache, of_own, rows, own(columns.slots)[0], mask.shape[2])
    by_window: dict[int | None, PackedMask] = {}

    def masks(window: int | None) -> PackedMask:
        if window not in by_window:
            allowed = mask if window is None else mask & near(positions, cache, writer, window)
            by_window[window] = packing.mask(allowed, model.groups, model.dtype)
        return by_window[window]

    family, span = model.family, layers or (0, model.num_layers)
    tokens = own(columns.tokens)
    entering = family.embed(tokens, of_own) if features is None else own(features)
    return packing.padded(family.run(entering, of_own, masks, writer, span, skips))


class PackedWriter(CacheWriter):
    """A writer for the tokens of all rows one after another, without those that do not count.

    Args:
        cache: the storage.
        positions: int64 `[1, N]`.
        rows: int64 `[N]`, whose tokens they are.
        slots: int64 `[N]`.
        used: slots that are read, the first ones.
    """

    def __init__(
        self, cache: KVCache, positions: Tensor, rows: Tensor, slots: Tensor, used: int
    ) -> None:
        self.cache, self.rows, self.slots, self.used = cache, rows, slots, used
        cache.positions[rows, slots] = positions[0]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write `[1, H_kv, N, head_dim]` keys and values; return all rows' used slots."""
        both = self.cache.keys[layer_idx], self.cache.values[layer_idx]
        for every, new in zip(both, (keys, values), strict=True):
            every[self.rows, :, self.slots] = rounded(new[0].transpose(0, 1), every.dtype)
        return self.read(*both, keys.dtype)

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """See `CacheWriter.note`: caches that store queries are not written in packs."""
