"""Measured factors on a grid: how much slower than a reference formula, and how sure that is.

What is interpolated is the logarithm of measured / reference seconds, over logarithms of the
sizes: the reference (a roofline, `reference.py`) carries the scale, so that a size between or
beyond the measured ones gets the reference's time with its neighbours' efficiency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEVEL = 0.90  # every interval of the project is meant as a 90 % interval
_HOLE = 0.1  # weight of unmeasured corners from which on a point counts as outside
_UNKNOWN = 0.5  # relative error where no measurements bound it
_NEIGHBOURS = 1.5  # variance of (a point - the mean of two neighbours) over that of a point


@dataclass(frozen=True, slots=True)
class Reading:
    """What a table says; numbers or arrays of one shape.

    Attributes:
        factor: measured / reference seconds.
        error: half width of the 90 % interval, relative.
        outside: the point lies beyond what was measured.
    """

    factor: Any
    error: Any
    outside: Any


@dataclass(frozen=True, slots=True)
class Grid:
    """Factors on a rectangular grid of sizes, which may have holes.

    Attributes:
        axes: logarithms of the anchors, rising, one array per axis.
        logs: logarithms of the factors; holes hold the last measured one on the axis whose factors
            change least towards its end.
        known: where something was measured.
        repeat_error: relative scatter of single cells (90 %).
        axis_errors: relative error of a point left out, predicted from its two neighbours on
            each axis (90 %); what lies halfway between two anchors is taken to err as much.
        edge_errors: relative error (90 %) per factor of two before the first measured anchor,
            and beyond the last one.
    """

    axes: tuple[Floats, ...]
    logs: Floats
    known: NDArray[np.bool_]
    repeat_error: float
    axis_errors: tuple[float, ...]
    edge_errors: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, sizes: Sequence[Any], factors: Any, noise_axis: int) -> Grid:
        """From scattered cells; several of one size are replaced by their median.

        Args:
            sizes: one array per axis, positive.
            factors: measured / reference seconds, positive.
            noise_axis: axis along which neighbours differ so little that what is left of a cell
                after its neighbours' mean is scatter; its first quarter is looked at.
        """
        axes, indices = [], []
        for values in sizes:
            anchors, index = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
            axes.append(np.log(anchors))
            indices.append(index.ravel())
        shape = tuple(len(axis) for axis in axes)
        logs = _medians(np.ravel_multi_index(indices, shape), factors, shape)
        residuals = [_left_out(logs, axis, number) for number, axis in enumerate(axes)]
        early = np.moveaxis(residuals[noise_axis], noise_axis, 0)
        early = early[: max(3, shape[noise_axis] // 4)]
        edges = tuple(_edges(logs, axis, number) for number, axis in enumerate(axes))
        steadiest = sorted(range(len(axes)), key=lambda number: edges[number][1])
        return cls(
            tuple(axes),
            _filled(logs, steadiest),
            ~np.isnan(logs),
            _quantile(early) / _NEIGHBOURS**0.5,
            tuple(_quantile(residual) for residual in residuals),
            edges,
        )

    def at(self, *sizes: Any) -> Reading:
        """The reading at a point, or at arrays of points that broadcast."""
        points = np.broadcast_arrays(*(np.asarray(size, dtype=np.float64) for size in sizes))
        places = [_place(axis, np.log(x)) for axis, x in zip(self.axes, points, strict=True)]
        logs: Any = 0.0
        holes: Any = 0.0
        for corner in product((0, 1), repeat=len(places)):
            cell = tuple(
                np.minimum(place.index + step, len(axis) - 1)
                for place, step, axis in zip(places, corner, self.axes, strict=True)
            )
            weight: Any = 1.0
            for place, step in zip(places, corner, strict=True):
                weight = weight * (place.weight if step else 1.0 - place.weight)
            logs = logs + weight * self.logs[cell]
            holes = holes + weight * ~self.known[cell]
        variance: Any = self.repeat_error**2
        for place, between, edge in zip(places, self.axis_errors, self.edge_errors, strict=True):
            variance = variance + (4.0 * place.weight * (1.0 - place.weight) * between) ** 2
            variance = variance + place.edge_error(edge) ** 2
        beyond: Any = sum(abs(place.beyond) for place in places)
        variance = variance + holes * min(last for _, last in self.edge_errors) ** 2
        return Reading(np.exp(logs), np.sqrt(variance), (beyond > 1e-9) | (holes > _HOLE))

    def left_out(self, number: int) -> Floats:
        """Relative error of every cell predicted from its two neighbours on an axis; NaN for none.

        A cell's neighbours are farther apart than the anchors around any other point.
        """
        return _left_out(np.where(self.known, self.logs, np.nan), self.axes[number], number)

    def fixed(self, *sizes: float) -> Curve:
        """The grid over its first axis, at fixed sizes of all others."""
        ends = self.at(np.exp(self.axes[0]), *sizes)
        return Curve(self, self.axes[0], np.log(ends.factor), ends.error, ends.outside)


@dataclass(frozen=True, slots=True)
class Curve:
    """A grid at fixed sizes of all axes but the first: quick to ask again and again."""

    grid: Grid
    axis: Floats
    logs: Floats
    errors: Floats
    outside: NDArray[np.bool_]

    def at(self, size: Any) -> Reading:
        """The reading at one size or an array of them."""
        place = _place(self.axis, np.log(np.asarray(size, dtype=np.float64)))
        after = np.minimum(place.index + 1, len(self.axis) - 1)
        logs = self.logs[place.index] * (1.0 - place.weight) + self.logs[after] * place.weight
        between = 4.0 * place.weight * (1.0 - place.weight) * self.grid.axis_errors[0]
        edge = place.edge_error(self.grid.edge_errors[0])
        error = np.sqrt(self.errors[place.index] ** 2 + between**2 + edge**2)
        return Reading(np.exp(logs), error, (abs(place.beyond) > 1e-9) | self.outside[place.index])


@dataclass(frozen=True, slots=True)
class _Place:
    index: Any
    weight: Any
    beyond: Any  # logarithm, negative before the first anchor

    def edge_error(self, errors: tuple[float, float]) -> Any:
        """Relative error from lying before the first or beyond the last anchor."""
        per_doubling = np.where(self.beyond < 0.0, *errors)
        return np.abs(self.beyond) / np.log(2.0) * per_doubling


def _place(axis: Floats, x: Any) -> _Place:
    """The cell that holds `x`, where in it, and how far `x` is beyond the axis."""
    clipped = np.clip(x, axis[0], axis[-1])
    if len(axis) == 1:
        return _Place(np.zeros_like(clipped, dtype=np.intp), np.zeros_like(clipped), x - clipped)
    index = np.clip(np.searchsorted(axis, clipped, side="right") - 1, 0, len(axis) - 2)
    weight = (clipped - axis[index]) / (axis[index + 1] - axis[index])
    return _Place(index, weight, x - clipped)


def _medians(cells: NDArray[np.intp], factors: Any, shape: tuple[int, ...]) -> Floats:
    """Median logarithm of each cell; NaN where nothing was measured."""
    values = np.log(np.asarray(factors, dtype=np.float64))
    order = np.lexsort((values, cells))
    cells, values = cells[order], values[order]
    distinct, start, count = np.unique(cells, return_index=True, return_counts=True)
    middle = 0.5 * (values[start + (count - 1) // 2] + values[start + count // 2])
    logs = np.full(int(np.prod(shape)), np.nan)
    logs[distinct] = middle
    return logs.reshape(shape)


def _filled(logs: Floats, order: Sequence[int]) -> Floats:
    """Holes take the nearest earlier value on an axis, else the nearest later one."""
    filled = logs.copy()
    for number in order:
        lines = np.moveaxis(filled, number, 0)  # a view
        for rows in (lines, lines[::-1]):
            for i in range(1, len(rows)):
                rows[i] = np.where(np.isnan(rows[i]), rows[i - 1], rows[i])
    return filled


def _left_out(logs: Floats, axis: Floats, number: int) -> Floats:
    """Relative errors of inner cells predicted from both neighbours on one axis."""
    rows = np.moveaxis(logs, number, 0)
    errors = np.full(rows.shape, np.nan)
    if len(axis) > 2:
        part = ((axis[1:-1] - axis[:-2]) / (axis[2:] - axis[:-2])).reshape(
            -1, *[1] * (rows.ndim - 1)
        )
        predicted = (1.0 - part) * rows[:-2] + part * rows[2:]
        errors[1:-1] = np.abs(np.exp(predicted - rows[1:-1]) - 1.0)
    return np.moveaxis(errors, 0, number)


def _edges(logs: Floats, axis: Floats, number: int) -> tuple[float, float]:
    """Relative change of the factor per factor of two of size, at both ends of an axis."""
    lines = np.moveaxis(logs, number, 0).reshape(len(axis), -1)
    if len(axis) < 2:
        return _UNKNOWN, _UNKNOWN
    slopes = np.diff(lines, axis=0) / (np.diff(axis) / np.log(2.0))[:, None]
    there = ~np.isnan(slopes)
    column = np.flatnonzero(there.any(axis=0))
    first = slopes[there.argmax(axis=0)[column], column]
    last = slopes[len(slopes) - 1 - there[::-1].argmax(axis=0)[column], column]
    return _quantile(np.abs(np.expm1(first))), _quantile(np.abs(np.expm1(last)))


def _quantile(errors: Floats) -> float:
    measured = errors[~np.isnan(errors)]
    return float(np.quantile(measured, _LEVEL)) if measured.size else _UNKNOWN
