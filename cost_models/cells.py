"""Quantities over many loads at once: arrays with one entry per cell of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from specplan.cost_models.cost import Quantity

T = TypeVar("T")


def grid(*axes: Sequence[float]) -> tuple[Any, ...]:
    """All combinations of the axes' values as arrays [cells], the last axis fastest."""
    return tuple(axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))


def split(value: T, count: int) -> list[T]:
    """One value per cell: of an array its entries, of a dataclass or a tuple those of its parts."""
    found = _split(value, count)
    return [value] * count if found is None else found


def _split(value: Any, count: int) -> list[Any] | None:
    """As `split`; None where no part is an array."""
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if isinstance(value, tuple):
        columns = [_split(part, count) for part in value]
        if all(column is None for column in columns):
            return None
        filled = (
            [part] * count if column is None else column
            for part, column in zip(value, columns, strict=True)
        )
        return list(zip(*filled, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: _split(getattr(value, item.name), count) for item in fields(value)}
        changed = {name: column for name, column in parts.items() if column is not None}
        rows = zip(*changed.values(), strict=True)
        made = [replace(value, **dict(zip(changed, row, strict=True))) for row in rows]
        return made if changed else None
    return None


def each(key: Quantity, function: Callable[[int], T]) -> T:
    """A function of a whole number, over an array of them called once for each value.

    Args:
        key: a number, or an array [cells].
        function: gives numbers, or dataclasses and tuples of numbers that differ in nothing else.
    """
    if not isinstance(key, np.ndarray):
        return function(int(key))
    values = sorted(set(key.tolist()))
    return _stacked([function(int(value)) for value in values], np.searchsorted(values, key))


def chosen(values: Sequence[T], which: Any) -> T:
    """Cell by cell, the number of the value that is chosen there.

    Args:
        values: numbers, arrays [cells], or dataclasses of them; what else they hold is the first's.
        which: index into `values` of each cell, [cells].
    """
    first: Any = values[0]
    found: Any = first
    if isinstance(first, np.ndarray | bool | int | float):
        found = np.stack(np.broadcast_arrays(*map(np.asarray, values), which)[:-1])[
            which, np.arange(len(which))
        ]
    elif is_dataclass(first):
        parts = {
            item.name: chosen([getattr(value, item.name) for value in values], which)
            for item in fields(first)
        }
        found = replace(first, **parts)  # type: ignore[type-var]
    result: T = found
    return result


def _stacked(values: list[T], places: Any) -> T:
    first: Any = values[0]
    found: Any = first
    if isinstance(first, bool | int | float):
        found = np.array(values)[places]
    elif isinstance(first, tuple):
        rows: list[Any] = list(values)
        found = tuple(_stacked(list(column), places) for column in zip(*rows, strict=True))
    elif is_dataclass(first):
        parts = {
            item.name: _stacked([getattr(value, item.name) for value in values], places)
            for item in fields(first)
        }
        found = replace(first, **parts)  # type: ignore[type-var]
    result: T = found
    return result
