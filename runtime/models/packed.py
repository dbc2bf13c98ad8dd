"""A pass without its padding: the columns of all rows that run, one after another."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.attention import PackedMask, Packing
from specplan.runtime.models.causal import CausalModel, near
from specplan.runtime.models.kv_cache import KVCache, PackedWriter


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
