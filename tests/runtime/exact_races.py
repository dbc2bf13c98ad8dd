"""Exact distributions of races over three tokens: areas of a triangle, in fractions.

Three exponential times over their sum are uniform on the triangle of weights that sum to 1. Under a
distribution, token x is before token y where time(x) p(y) < time(y) p(x): a line through the
triangle. So the outcomes of any number of races over the same times are polygons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product

import torch

from specplan.runtime.races import exponentials, race
from tests.runtime.exact import Probabilities

Point = tuple[Fraction, Fraction, Fraction]
TRIANGLE: list[Point] = [
    (Fraction(1), Fraction(0), Fraction(0)),
    (Fraction(0), Fraction(1), Fraction(0)),
    (Fraction(0), Fraction(0), Fraction(1)),
]
NUMBERS = torch.arange(1 << 17, dtype=torch.float64).add(0.5) / (1 << 17)
"""Where a number is looked for that leads to an outcome."""
TIMES = exponentials(NUMBERS, 3)

Order = tuple[int, ...]


def outcomes(
    races: Sequence[tuple[Probabilities, int]],
) -> Iterator[tuple[Fraction, tuple[Order, ...], Fraction]]:
    """Chance, first tokens of each race (probabilities, count), a number that leads there."""
    codes = torch.zeros(len(NUMBERS), dtype=torch.int64)
    for probs, count in races:
        masses = torch.tensor([float(mass) for mass in probs], dtype=torch.float64)
        for place in race(masses.expand_as(TIMES), TIMES, count).unbind(1):
            codes = codes * 3 + place
    cells: list[tuple[list[Point], tuple[Order, ...]]] = [(TRIANGLE, ())]
    for probs, count in races:
        cells = [
            (part, (*known, order))
            for polygon, known in cells
            for order in permutations(range(3), count)
            if area(part := _begun(polygon, probs, order))
        ]
    for polygon, known in cells:
        code = 0
        for place in (token for order in known for token in order):
            code = code * 3 + place
        hits = (codes == code).nonzero()
        assert len(hits), "no number leads to an outcome"
        yield area(polygon), known, Fraction(float(NUMBERS[int(hits[0])]))


def _begun(polygon: list[Point], probs: Probabilities, order: Order) -> list[Point]:
    """The part of a polygon where these tokens arrive first, in this order."""
    for first, second in product(order, range(3)):
        if second not in order or order.index(second) > order.index(first):
            polygon = _clipped(polygon, first, second, probs)
    return polygon


def _clipped(polygon: list[Point], first: int, second: int, probs: Probabilities) -> list[Point]:
    """The part of a convex polygon where `first` is not after `second`."""

    def late(point: Point) -> Fraction:
        return point[first] * probs[second] - point[second] * probs[first]

    corners: list[Point] = []
    for here, there in zip(polygon, [*polygon[1:], *polygon[:1]], strict=True):
        before, after = late(here), late(there)
        if before <= 0:
            corners.append(here)
        if before * after < 0:
            share = before / (before - after)
            x, y, z = (a + share * (b - a) for a, b in zip(here, there, strict=True))
            corners.append((x, y, z))
    return corners


def area(polygon: list[Point]) -> Fraction:
    """Part of the triangle that a polygon fills."""
    twice = sum(
        (
            a[0] * b[1] - a[1] * b[0]
            for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True)
        ),
        Fraction(0),
    )
    return abs(twice)
