"""Tables of times over any number of coordinates: linear between anchors, but for cliffs.

A trend is the analytic form fitted to the same anchors. It says what is a cliff (a step between two
anchors that the trend does not take, as kernels make where they change tiles), and how times go on
beyond the anchors. Everything works on arrays of points; a single point is an array of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.intervals import Seconds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Coordinates = tuple[Floats, ...]
Trend = Callable[[Coordinates], Floats]

CLIFF = 0.15
"""A step that deviates from the trend's by more than this part is a cliff."""
_LEAST_ERROR = 0.03
"""Of the trend, relative, at one anchor's distance outside."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured time.

    Attributes:
        time: with its 90 % interval.
        own: relative half width of what is not common to all anchors; a smaller step is none.
    """

    time: Seconds
    own: float = 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """Times at several points, arrays of one length: 90 % intervals, trend, outside or not."""

    median: Floats
    low: Floats
    high: Floats
    trend: Floats
    outside: Bools

    @classmethod
    def where(cls, condition: Bools, yes: Times, no: Times) -> Times:
        """Point by point one of two."""
        return cls(*(np.where(condition, getattr(yes, f), getattr(no, f)) for f in _FIELDS))


_FIELDS = ("median", "low", "high", "trend", "outside")


@dataclass(frozen=True, eq=False)
class Axis:
    """One coordinate: anchors in rising order, and at each a time or a further axis.

    Inner axes may differ from anchor to anchor: the grid need not be full.

    Attributes:
        level: which coordinate.
        anchors: [n].
        inner: an axis per anchor; None where the anchors hold times.
        times: [n] arrays where the anchors hold times.
        cliffs: [n - 1], steps between neighbours that are cliffs; None where they are found by
            the values at the point asked for.
        may_step: whether the axis has cliffs at all.
    """

    level: int
    anchors: Floats
    inner: tuple[Axis, ...] | None
    times: Times | None
    cliffs: Bools | None
    may_step: bool

    def at(self, points: Coordinates, trend: Trend | None = None, error: float = 0.0) -> Seconds:
        """Times at points, arrays of one length; `extrapolated` when any point is outside.

        At an anchor it is the anchor's own. Between two it is on the line through them; across a
        cliff, whose place is not known, it is the nearer one's and the interval spans both.
        Outside it goes along the trend from the nearest anchor, and the bounds widen: by the
        trend's `error` at the anchor, and as much again with every doubling of the distance.
        Without a trend it is on the line through the last two anchors, which is not let fall;
        below the first it is the first.
        """
        times = self._at(points, _Outside(trend, max(error, _LEAST_ERROR)))
        return Seconds(
            times.median,  # type: ignore[arg-type]
            times.low,  # type: ignore[arg-type]
            times.high,  # type: ignore[arg-type]
            bool(times.outside.any()),
        )

    def _at(self, points: Coordinates, rule: _Outside) -> Times:
        x, last = points[self.level], len(self.anchors) - 1
        left = np.clip(np.searchsorted(self.anchors, x, side="right") - 1, 0, max(last - 1, 0))
        right = np.minimum(left + 1, last)
        below, above = self._values(left, points, rule), self._values(right, points, rule)
        span = np.where(right > left, self.anchors[right] - self.anchors[left], 1.0)
        part = np.clip((x - self.anchors[left]) / span, 0.0, 1.0)
        times = Times.where(
            self._steps(left, below, above) & (part > 0.0) & (part < 1.0),
            _spanned(part, below, above),
            _mixed(part, below, above),
        )
        under, over = x < self.anchors[0], x > self.anchors[last]
        if under.any():
            times = Times.where(under, rule.below(self, points, below), times)
        if over.any():
            times = Times.where(over, rule.beyond(self, points, below, above), times)
        return times

    def _values(self, index: NDArray[np.int64], points: Coordinates, rule: _Outside) -> Times:
        if self.times is not None:
            times = self.times
            return Times(*(getattr(times, field)[index] for field in _FIELDS))
        assert self.inner is not None
        columns = [np.empty(len(index), dtype=bool if f == "outside" else float) for f in _FIELDS]
        for place in np.unique(index):
            chosen = index == place
            here = tuple(coordinate[chosen] for coordinate in points)
            inner = self.inner[place]._at(replaced(here, self.level, self.anchors[place]), rule)
            for column, field in zip(columns, _FIELDS, strict=True):
                column[chosen] = getattr(inner, field)
        return Times(*columns)

    def _steps(self, left: NDArray[np.int64], below: Times, above: Times) -> Bools:
        if not self.may_step or len(self.anchors) < 2:
            return np.zeros(len(left), dtype=bool)
        if self.cliffs is not None:
            steps: Bools = self.cliffs[left]
            return steps
        return is_cliff(below.median, above.median, below.trend, above.trend)


def nested_axes(
    points: Mapping[float, Any],
    trend: Trend | None = None,
    stepping: Sequence[bool] = (),
    _outer: tuple[float, ...] = (),
) -> Axis:
    """Axes from nested mappings `{coordinate: {coordinate: ... Anchor}}`.

    Args:
        points: outermost coordinate first.
        trend: of the same coordinates; without one there are no cliffs.
        stepping: per coordinate, whether cliffs are looked for; not where it is left out.
    """
    level = len(_outer)
    places = sorted(points)
    anchors = np.array(places, dtype=np.float64)
    may_step = trend is not None and level < len(stepping) and stepping[level]
    if not isinstance(points[places[0]], Anchor):
        inner = tuple(
            nested_axes(points[place], trend, stepping, (*_outer, place)) for place in places
        )
        return Axis(level, anchors, inner, None, None, may_step)
    members = [points[place] for place in places]
    median = np.array([anchor.time.median for anchor in members], dtype=np.float64)
    usual = median
    if trend is not None:
        usual = trend((*(np.full(len(places), x) for x in _outer), anchors))
    times = Times(
        median,
        np.array([anchor.time.low for anchor in members], dtype=np.float64),
        np.array([anchor.time.high for anchor in members], dtype=np.float64),
        np.asarray(usual, dtype=np.float64),
        np.array([anchor.time.extrapolated for anchor in members], dtype=bool),
    )
    own = np.array([anchor.own for anchor in members], dtype=np.float64)
    noise = np.hypot(own[:-1], own[1:])
    cliffs = is_cliff(median[:-1], median[1:], times.trend[:-1], times.trend[1:], noise)
    return Axis(level, anchors, None, times, cliffs, may_step)


def is_cliff(
    before: Floats, after: Floats, trend_before: Floats, trend_after: Floats, noise: Any = 0.0
) -> Bools:
    """Whether steps deviate from the trend's by more than `CLIFF`, and than their noise."""
    least = 1e-300
    step = np.log(np.maximum(after, least) / np.maximum(before, least))
    usual = np.log(np.maximum(trend_after, least) / np.maximum(trend_before, least))
    cliffs: Bools = np.abs(step - usual) > np.log1p(np.maximum(CLIFF, noise))
    return cliffs


def replaced(points: Coordinates, level: int, value: Any) -> Coordinates:
    """The points with one coordinate set."""
    column = np.broadcast_to(np.asarray(value, dtype=np.float64), points[level].shape)
    return (*points[:level], column, *points[level + 1 :])


def _mixed(part: Floats, below: Times, above: Times) -> Times:
    """On the lines between the values of two anchors."""

    def line(field: str) -> Floats:
        start, end = getattr(below, field), getattr(above, field)
        value: Floats = np.where(part == 1.0, end, start + (end - start) * part)
        return value

    outside = (below.outside & (part < 1.0)) | (above.outside & (part > 0.0))
    return Times(line("median"), line("low"), line("high"), line("trend"), outside)


def _spanned(part: Floats, below: Times, above: Times) -> Times:
    """The nearer anchor's value, with an interval that holds both."""
    return Times(
        np.where(part < 0.5, below.median, above.median),
        np.minimum(below.low, above.low),
        np.maximum(below.high, above.high),
        below.trend + (above.trend - below.trend) * part,
        below.outside | above.outside,
    )


@dataclass(frozen=True, slots=True)
class _Outside:
    """What happens below the first and beyond the last anchor."""

    trend: Trend | None
    error: float

    def below(self, axis: Axis, points: Coordinates, first: Times) -> Times:
        if self.trend is not None:
            return self.along(axis, points, first, float(axis.anchors[0]))
        reach = np.maximum(points[axis.level], 0.0) / axis.anchors[0]
        return Times(first.median, first.low * reach, first.high, first.trend, _all(reach))

    def beyond(self, axis: Axis, points: Coordinates, before: Times, last: Times) -> Times:
        x, anchor = points[axis.level], axis.anchors[-1]
        if self.trend is not None:
            return self.along(axis, points, last, float(anchor))
        widening = 0.5 * (x - anchor) / np.where(x == 0.0, 1.0, x)
        if len(axis.anchors) == 1:
            ratio = x / anchor if anchor > 0 else np.full(len(x), 2.0)
            low, high = last.low * (1.0 - widening), last.high * ratio
            return Times(last.median, low, high, last.trend, _all(x))
        steps = (x - anchor) / (anchor - axis.anchors[-2])

        def line(start: Floats, end: Floats) -> Floats:
            further: Floats = end + np.maximum(0.0, end - start) * steps
            return further

        median = line(before.median, last.median)
        low = np.minimum(median, line(before.low, last.low)) * (1.0 - widening)
        high = np.maximum(median, line(before.high, last.high)) * (1.0 + widening)
        return Times(median, low, high, last.trend, _all(x))

    def along(self, axis: Axis, points: Coordinates, nearest: Times, anchor: float) -> Times:
        """Along the trend from an anchor."""
        assert self.trend is not None
        x = points[axis.level]
        ratio = self.trend(points) / self.trend(replaced(points, axis.level, anchor))
        doublings = np.abs(np.log2((np.maximum(x, 0.0) + 1.0) / (anchor + 1.0)))
        widening = np.exp(self.error * (1.0 + doublings))
        return Times(
            nearest.median * ratio,
            nearest.low * ratio / widening,
            nearest.high * ratio * widening,
            nearest.trend * ratio,
            _all(x),
        )


def _all(like: Floats) -> Bools:
    return np.ones(len(like), dtype=bool)
