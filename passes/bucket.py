"""Which shapes of batches a round is compiled for: as few as are worth their compiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

MOST_SHAPES = 4
"""Shapes that are compiled at most."""
COMPILE_SECONDS = 80.0
"""Of one round in one shape by every backend: 50 s and 17 to 33 s (docs/compiled_rounds.md)."""
SERVING_SECONDS = 3600.0
"""Time of decoding that compiling must have paid within."""
UNCOMPILED = 1.2
"""Part by which a round takes longer where no compiled shape holds it: the interpreter took 2.2 to
2.9 times as long (docs/compiled_rounds.md)."""


@dataclass(frozen=True)
class BatchLoad:
    """What a round is asked to do.

    Attributes:
        batch: requests.
        text: tokens of the longest text.
        seconds: of a round.
        share: of the time in which it is asked for this; shares need not add up to 1.
    """

    batch: int
    text: int
    seconds: float
    share: float = 1.0


@dataclass(frozen=True)
class Buckets:
    """Shapes, and what they cost.

    Attributes:
        shapes: batch and text of each, in rising order of batches.
        padding: part by which decoding takes longer than with a shape for every load.
        compile_seconds: of all shapes.
    """

    shapes: tuple[tuple[int, int], ...]
    padding: float
    compile_seconds: float


def bucket(
    loads: Sequence[BatchLoad],
    compile_seconds: float = COMPILE_SECONDS,
    serving_seconds: float = SERVING_SECONDS,
    most: int = MOST_SHAPES,
) -> Buckets:
    """One round -> the shapes it is compiled for, out of the loads' own; the cheapest there are.

    A batch takes the smallest shape that holds it, and the time of a batch that fills it: padding
    costs what the larger batch takes more. A shape has room for the longest text that its loads
    have at its own batch (attention reads no more slots than texts have, so that room costs memory
    and no time); a longer one of a smaller batch may not fit on the device, and is not compiled.
    The largest batch always has a shape.

    Exact, by dynamic programming: shapes cut the sorted batches into runs, what a run loses depends
    on its last batch alone, and of all ways to cut what comes before it only the cheapest matters.

    Args:
        loads: at least one; their batches and texts.
        compile_seconds: of one shape.
        serving_seconds: decoding that the shapes are for.
        most: shapes at most.
    """
    sizes = sorted({load.batch for load in loads})
    whole = sum(load.share for load in loads)
    at = [[load for load in loads if load.batch == size] for size in sizes]
    lost = [
        [_lost(own, filled) / whole for own in at[: last + 1]] for last, filled in enumerate(at)
    ]
    none: tuple[float, tuple[int, ...]] = (inf, ())
    best = [(0.0, none[1]), *[none] * len(sizes)]
    cheapest: tuple[float, float, tuple[int, ...]] = (inf, inf, ())
    for count in range(1, min(most, len(sizes)) + 1):
        ways = [
            min((best[first][0] + sum(parts[first:]), (*best[first][1], first))
                for first in range(last + 1))
            for last, parts in enumerate(lost)
        ]  # fmt: skip
        best = [none, *ways]
        padding, firsts = best[-1]
        cost = padding * serving_seconds + count * compile_seconds
        cheapest = min(cheapest, (cost, padding, firsts))
    _, padding, firsts = cheapest
    ends = [first - 1 for first in firsts[1:]] + [len(sizes) - 1]
    shapes = tuple(
        (sizes[last], _room([load for own in at[first : last + 1] for load in own], at[last]))
        for first, last in zip(firsts, ends, strict=True)
    )
    return Buckets(shapes, padding, len(shapes) * compile_seconds)


def _lost(loads: Sequence[BatchLoad], filled: Sequence[BatchLoad]) -> float:
    """Shares of time that loads of one batch lose in a shape that others fill."""
    lost = 0.0
    for load in loads:
        fitting = [other for other in filled if other.text >= load.text]
        if not fitting:
            lost += load.share * UNCOMPILED
            continue
        seconds = min(fitting, key=lambda other: other.text).seconds
        lost += load.share * max(seconds / load.seconds - 1.0, 0.0)
    return lost


def _room(loads: Sequence[BatchLoad], filled: Sequence[BatchLoad]) -> int:
    """The longest text of a shape's loads that those which fill it have as well."""
    own = max(load.text for load in filled)
    return max(load.text for load in loads if load.text <= own)
