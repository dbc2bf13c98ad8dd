"""Distributions that the op `mix` makes of several models' logits: one file of pure functions each.

A law's file has `combine(logits, shares, **parameters)`: logits `[..., V]` from those of K models,
`[K, ..., V]`, and their shares `[K, ...]` (the op's `weights=`), None where the op gives none.
Parameters and their defaults are those that `specplan.ir.tables.laws` declares. `LAWS` maps each
file's name to its module.
"""

from __future__ import annotations

from specplan.ir.files import modules_of

LAWS = modules_of(__name__, __path__)

__all__ = ["LAWS"]
