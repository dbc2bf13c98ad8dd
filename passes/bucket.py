"""Which shapes of batches a round is compiled for: as few as are worth their compiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

MOST_SHAPES = 4
"""Shapes that are compiled at most."""
COMPILE_SECONDS = 80.0
"""Of one round in one shape by every backend: 50 s and 17 to 33 s (docs/backends.md)."""
SERVING_SECONDS = 3600.0
"""Time of decoding that compiling must have paid within."""
UNCOMPILED = 1.2
"""Part by which a round takes longer where no compiled shape holds it: the interpreter took 2.2 to
2.9 times as long (docs/backends.md)."""


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

    Exact, by dynamic programming: shapes cut the sorted batches into runs, and of the runs that
    begin at a batch only the cheapest matters for what comes before it.

    Args:
        loads: at least one; their batches and texts.
        compile_seconds: of one shape.
        serving_seconds: decoding that the shapes are for.
        most: shapes at most.
    """
    sizes = sorted({load.batch for load in loads})
    whole = sum(load.share for load in loads)
    runs = {
        (first, last): _run(loads, sizes[first], sizes[last], whole)
        for last in range(len(sizes))
        for first in range(last + 1)
    }
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] + [(inf, ())] * len(sizes)
    cheapest: tuple[float, float, tuple[int, ...]] = (inf, inf, ())
    for count in range(1, min(most, len(sizes)) + 1):
        best = [(inf, ())] + [
            min((best[first][0] + runs[first, last], (*best[first][1], first))
                for first in range(last + 1))
            for last in range(len(sizes))
        ]  # fmt: skip
        padding, firsts = best[-1]
        cost = padding * serving_seconds + count * compile_seconds
        cheapest = min(cheapest, (cost, padding, firsts))
    _, padding, firsts = cheapest
    ends = [sizes[first - 1] for first in firsts[1:]] + [sizes[-1]]
    starts = [sizes[first] for first in firsts]
    shapes = tuple((end, _room(loads, start, end)) for start, end in zip(starts, ends, strict=True))
    return Buckets(shapes, padding, len(shapes) * compile_seconds)


def _run(loads: Sequence[BatchLoad], first: int, last: int, whole: float) -> float:
    """Part of all time that is lost where one shape of batch `last` serves these batches."""
    room, lost = _room(loads, first, last), 0.0
    for load in _between(loads, first, last):
        if load.text > room:
            lost += load.share * UNCOMPILED
            continue
        filled = min(
            (other for other in loads if other.batch == last and other.text >= load.text),
            key=lambda other: other.text,
        )
        lost += load.share * max(filled.seconds / load.seconds - 1.0, 0.0)
    return lost / whole


def _room(loads: Sequence[BatchLoad], first: int, last: int) -> int:
    """The longest text of these batches that the largest of them has as well."""
    own = max(load.text for load in loads if load.batch == last)
    return max(load.text for load in _between(loads, first, last) if load.text <= own)


def _between(loads: Sequence[BatchLoad], first: int, last: int) -> Iterator[BatchLoad]:
    return (load for load in loads if first <= load.batch <= last)
