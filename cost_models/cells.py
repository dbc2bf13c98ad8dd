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
    columns = _split(value, count)
    return [value] * count if columns is None else columns


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
        cells = zip(*changed.values(), strict=True)
        return [replace(value, **dict(zip(changed, cell, strict=True))) for cell in cells] or None
    return None


def at_cells(value: T, which: Sequence[bool]) -> T:
    """The value at some cells alone: arrays [cells] in it, of a dataclass or a tuple too."""
    at: Any = value
    if isinstance(value, np.ndarray):
        at = value[np.asarray(which)]
    elif isinstance(value, tuple):
        at = tuple(at_cells(part, which) for part in value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in fields(value) if item.init}
        at = replace(value, **{name: at_cells(part, which) for name, part in parts.items()})
    return at  # type: ignore[no-any-return]


def each(key: Quantity, function: Callable[[int], T]) -> T:
    """A function of a whole number, over an array of them called once for each value.

    Args:
        key: a number, or an array [cells].
        function: gives numbers, or dataclasses and tuples of numbers that differ in nothing else.
    """
    if not isinstance(key, np.ndarray):
        return function(int(key))
    numbers = sorted(set(key.tolist()))
    places = np.searchsorted(numbers, key)
    return _joined(
        [function(int(number)) for number in numbers],
        lambda leaves: np.array(leaves)[places],
        into_tuples=True,
    )


def chosen(values: Sequence[T], which: Any) -> T:
    """Cell by cell, the number of the value that is chosen there.

    Args:
        values: numbers, arrays [cells], or dataclasses of them; what else they hold is the first's.
        which: index into `values` of each cell, [cells].
    """

    def choose(leaves: list[Any]) -> Any:
        return np.stack(np.broadcast_arrays(*leaves, which)[:-1])[which, np.arange(len(which))]

    return _joined(list(values), choose)


def _joined(values: list[T], join: Callable[[list[Any]], Any], into_tuples: bool = False) -> T:
    """One value of several alike: their numbers joined, part by part; the rest is the first's."""
    first: Any = values[0]
    joined: Any = first
    if isinstance(first, np.ndarray | bool | int | float):
        joined = join(values)
    elif into_tuples and isinstance(first, tuple):
        columns: Any = zip(*values, strict=True)
        joined = tuple(_joined(list(column), join, True) for column in columns)
    elif is_dataclass(first):
        parts = {
            item.name: _joined([getattr(value, item.name) for value in values], join, into_tuples)
            for item in fields(first)
        }
        joined = replace(first, **parts)  # type: ignore[type-var]
    return joined  # type: ignore[no-any-return]
