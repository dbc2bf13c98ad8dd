"""Piecewise linear tables of times over any number of coordinates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.intervals import Seconds


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate: anchors in rising order, and at each a time or a further axis.

    Inner axes may differ from anchor to anchor: the grid need not be full.
    """

    anchors: tuple[float, ...]
    values: tuple[Seconds | Axis, ...]

    @classmethod
    def nested(cls, points: Mapping[float, Any]) -> Axis:
        """Build from nested mappings `{coordinate: {coordinate: ... Seconds}}`."""
        anchors = tuple(sorted(points))
        values = (points[anchor] for anchor in anchors)
        return cls(
            anchors,
            tuple(v if isinstance(v, Seconds) else cls.nested(v) for v in values),
        )

    def at(self, coordinates: Sequence[float]) -> Seconds:
        """The time at a point, one coordinate per nested axis.

        At an anchor it is the anchor's own; between two it is on the line through them;
        beyond the last it is on the line through the last two, which is not let fall, and
        below the first it is the first. Outside, `extrapolated` is set and the bounds widen.
        """
        x, anchors = coordinates[0], self.anchors
        index = bisect_left(anchors, x)
        if index < len(anchors) and anchors[index] == x:
            return self._value(index, coordinates)
        if index == 0:
            first = self._value(0, coordinates)
            reach = max(x, 0.0) / anchors[0]
            return Seconds(first.median, first.low * reach, first.high, True)
        if index < len(anchors):
            left, right = anchors[index - 1], anchors[index]
            part = (x - left) / (right - left)
            return self._value(index - 1, coordinates) * (1.0 - part) + (
                self._value(index, coordinates) * part
            )
        return self._beyond(x, coordinates)

    def _beyond(self, x: float, coordinates: Sequence[float]) -> Seconds:
        last_anchor = self.anchors[-1]
        last = self._value(-1, coordinates)
        widening = 0.5 * (x - last_anchor) / x
        if len(self.anchors) == 1:
            ratio = x / last_anchor if last_anchor > 0 else 2.0
            return Seconds(last.median, last.low * (1.0 - widening), last.high * ratio, True)
        before = self._value(-2, coordinates)
        steps = (x - last_anchor) / (last_anchor - self.anchors[-2])

        def line(start: float, end: float) -> float:
            return end + max(0.0, end - start) * steps

        median = line(before.median, last.median)
        return Seconds(
            median,
            min(median, line(before.low, last.low)) * (1.0 - widening),
            max(median, line(before.high, last.high)) * (1.0 + widening),
            True,
        )

    def _value(self, index: int, coordinates: Sequence[float]) -> Seconds:
        value = self.values[index]
        return value if isinstance(value, Seconds) else value.at(coordinates[1:])
