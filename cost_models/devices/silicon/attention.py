"""Attention from tables of single-token decoding and of prompts without a past.

Kernels share their work out by sequence and KV head: what counts is the number of such pairs,
the query rows of each, and the tokens in reach. Rows of a table that agree in these differ by 1
to 4 % (mean over the tables of A100, H100, B200 and L40S; docs/kernel_tables.md). Hence a pass of
n query tokens over a cache is priced as one token with n times as many query heads per KV head,
which is what kernels make of it that pack queries (FlashAttention 3, FlashInfer); where that is
more rows than were measured, as a prompt of equal work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.devices.silicon.grid import Grid, Reading
from specplan.cost_models.devices.silicon.package import DataSheet, Table
from specplan.cost_models.devices.silicon.reference import cold_seconds, reference_seconds

_QUERY_BYTES = 2.0
_KV_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0}
_WIDTH_ERROR = 0.4  # of another head width: 64 and 256 from 128, left out, err by 0.36 in decoding
_PACKED_ERROR = 0.25  # of several tokens over a cache, which no table has: an assumption

_SIZES = ("batch_size", "num_heads", "isl", "step", "head_dim")

Kind = Literal["decode", "prompt"]
COLUMNS = (*_SIZES, "num_key_value_heads", "attn_dtype", "kv_cache_dtype")
OPTIONAL_COLUMNS = ("window_size",)


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """One attention of one layer; numbers, or arrays that broadcast.

    Attributes:
        batch: sequences.
        tokens: query tokens of each.
        reach: tokens attended to besides those, per sequence.
        heads: query heads.
        kv_heads: heads of keys and values.
        head_dim: their width.
        kv_format: number format of the cache.
    """

    batch: Any
    tokens: Any
    reach: Any
    heads: int
    kv_heads: int
    head_dim: int
    kv_format: str


@dataclass(frozen=True)
class Attention:
    """Times of attention.

    Attributes:
        sheet: the device's.
        grids: factors over pairs of sequence and KV head, query heads of each, and length, by
            kind of pass, head width and format of the cache.
        sources: files of the tables.
    """

    sheet: DataSheet
    grids: Mapping[tuple[Kind, int, str], Grid]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, sheet: DataSheet, tables: Mapping[Kind, Table]) -> Attention | None:
        """From the tables of both kinds of passes; None without rows of both for some width."""
        grids: dict[tuple[Kind, int, str], Grid] = {}
        for kind, table in tables.items():
            for width, kv_format, rows in _parts(table):
                grids[kind, width, kv_format] = _grid(sheet, kind, width, kv_format, rows)
        if {kind for kind, _, _ in grids} != {"decode", "prompt"}:
            return None
        return cls(sheet, grids, tuple(table.source for table in tables.values()))

    def seconds(self, size: AttentionSize) -> tuple[Any, Reading] | None:
        """Seconds of one attention and the reading behind them; None if nothing fits."""
        decode = self._nearest("decode", size)
        prompt = self._nearest("prompt", size)
        if decode is None or prompt is None:
            return None
        units = size.batch * size.kv_heads
        group = size.heads / size.kv_heads
        pairs = size.tokens * (size.reach + (size.tokens + 1) / 2.0)
        length = size.reach + size.tokens
        packed = decode[0].at(group * size.tokens, units, length)
        # a prompt of L tokens has L (L + 1) / 2 pairs
        whole = prompt[0].at(group, units, np.sqrt(2.0 * pairs + 0.25) - 0.5)
        most = np.exp(decode[0].axes[0][-1])
        past, several = np.asarray(size.reach) > 0, np.asarray(size.tokens) > 1
        as_prompt = (~past & several) | (group * size.tokens > most)
        error = np.where(as_prompt, np.hypot(whole.error, prompt[1]), packed.error)
        error = np.where(as_prompt, error, np.hypot(error, decode[1]))
        reading = Reading(
            np.where(as_prompt, whole.factor, packed.factor),
            np.hypot(error, _PACKED_ERROR * (past & several)),
            np.where(as_prompt, whole.outside, packed.outside),
        )
        reference = _reference(
            self.sheet, size.head_dim, size.kv_format, units, group, size.tokens, length, pairs
        )
        return reference * reading.factor, reading

    def _nearest(self, kind: Kind, size: AttentionSize) -> tuple[Grid, float] | None:
        """The grid of the nearest head width, and the error if that is another one."""
        widths = [
            width
            for grid_kind, width, kv_format in self.grids
            if grid_kind == kind and kv_format == size.kv_format
        ]
        if not widths:
            return None
        width = min(widths, key=lambda known: abs(np.log(known / size.head_dim)))
        error = 0.0 if width == size.head_dim else _WIDTH_ERROR
        return self.grids[kind, width, size.kv_format], error


def _parts(table: Table) -> list[tuple[int, str, Table]]:
    """Rows without a window by head width and cache format, sixteen-bit queries first."""
    columns = table.columns
    heads, kv_heads = columns["num_heads"], _kv_heads(table)
    whole = heads % kv_heads == 0
    if "window_size" in columns:
        whole &= columns["window_size"] == 0
    parts = []
    for width in np.unique(columns["head_dim"]):
        for kv_format in sorted(set(columns["kv_cache_dtype"])):
            chosen = whole & (columns["head_dim"] == width)
            chosen &= columns["kv_cache_dtype"] == kv_format
            queries = sorted(set(columns["attn_dtype"][chosen]))
            if not queries or str(kv_format) not in _KV_BYTES:
                continue
            chosen &= columns["attn_dtype"] == queries[0]
            parts.append((int(width), str(kv_format), table.where(chosen)))
    return parts


def _kv_heads(table: Table) -> NDArray[Any]:
    """Heads of keys and values; 0 in a table stands for as many as query heads."""
    kv_heads = table.columns["num_key_value_heads"]
    return np.where(kv_heads == 0, table.columns["num_heads"], kv_heads)


def _grid(sheet: DataSheet, kind: Kind, width: int, kv_format: str, rows: Table) -> Grid:
    columns = {name: rows.columns[name].astype(np.float64) for name in _SIZES}
    kv_heads = _kv_heads(rows).astype(np.float64)
    units, group = columns["batch_size"] * kv_heads, columns["num_heads"] / kv_heads
    tokens = columns["isl"]
    length = tokens + columns["step"]
    pairs = tokens * (columns["step"] + (tokens + 1) / 2.0)
    reference = _reference(sheet, width, kv_format, units, group, tokens, length, pairs)
    seconds = rows.seconds
    if kind == "decode":
        cached = 2.0 * units * width * _KV_BYTES[kv_format] * length
        seconds = cold_seconds(sheet, seconds, cached)
    even = np.log2(units) % 1 == 0  # others are few, and would leave the grid full of holes
    sizes = [values[even] for values in (group, units, length)]
    return Grid.of(sizes, (seconds / reference)[even], noise_axis=2)


def _reference(
    sheet: DataSheet,
    width: int,
    kv_format: str,
    units: Any,
    group: Any,
    tokens: Any,
    length: Any,
    pairs: Any,
) -> Any:
    """Of 4 hd flops per query row and pair, and keys, values, queries and outputs moved."""
    flops = 4.0 * width * units * group * pairs
    moved = 2.0 * units * width * (_KV_BYTES[kv_format] * length + _QUERY_BYTES * group * tokens)
    return reference_seconds(sheet, "bfloat16", flops, moved)
