"""Where a priced plan stops being faster than plain decoding, with the interval of the point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specplan.cost_models.acceptance.evidence.base import Drafting
from specplan.cost_models.acceptance.evidence.hazards import Hazards
from specplan.cost_models.acceptance.model import AcceptanceModel
from specplan.cost_models.formulas.closed_forms import accepted_at_least
from specplan.cost_models.intervals import Interval

Table = tuple[tuple[float, ...], ...]


def most_scale(drafting: Drafting) -> float:
    """The factor at which the likeliest depth of the plan's tree is certain to be accepted."""
    likeliest = max((sum(row) for row in _table(drafting)), default=0.0)
    return 1.0 / likeliest if likeliest > 0.0 else 1.0


def scaled_hazards(drafting: Drafting, scale: float) -> Hazards:
    """Hazards by depth and rank, all multiplied.

    At a scale of 1 the plan's tree accepts as much of every depth as by the profile itself, and
    the tokens per round have an interval as wide. Contexts are taken to be alike.
    """
    rows = tuple(tuple(scale * p for p in row) for row in _table(drafting))
    return Hazards(rows, _trials(drafting))


def _table(drafting: Drafting) -> Table:
    """Hazards by depth and rank that give this tree the profile's own acceptance by depth."""
    model = _model(drafting)
    width = max(drafting.ranks, default=0) + 1
    wanted = model.accepted_at_least(drafting.parents, drafting.ranks)
    plain = accepted_at_least(drafting.parents, drafting.ranks, model.hazard)
    rows = []
    wanted += (0.0,) * (len(plain) - len(wanted))  # depths that no trace reached
    levels = zip(pairwise((1.0, *wanted)), pairwise((1.0, *plain)), strict=False)
    for depth, ((above, here), (plain_above, plain_here)) in enumerate(levels, start=1):
        factor = 1.0
        if min(above, plain_above, plain_here) > 0.0:
            factor = (here / above) / (plain_here / plain_above)
        row = [model.hazard(depth, rank) * factor for rank in range(width)]
        most = max(1.0, sum(row))
        rows.append(tuple(p / most for p in row))
    return tuple(rows)


def _trials(drafting: Drafting) -> float | None:
    """Trials that give the tokens per round an interval as wide as the profile's own."""
    tree = drafting.parents, drafting.ranks
    own = _model(drafting).tokens_per_round(*tree)
    if own.high <= own.low:
        return None
    trials = 1000.0
    trial_tokens = Hazards(_table(drafting), trials).model.tokens_per_round(*tree)
    return trials * ((trial_tokens.high - trial_tokens.low) / (own.high - own.low)) ** 2


def _model(drafting: Drafting) -> AcceptanceModel:
    assert drafting.evidence is not None, "plans that draft have evidence"
    return drafting.evidence.model


Range = tuple[float, float]


@dataclass(frozen=True)
class Edge:
    """Where a priced plan starts or stops paying.

    Attributes:
        mean: by the estimate's own values.
        low: least value by its 90 % interval; None where that lies outside of what was looked at.
        high: largest value; None likewise.
    """

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PricedBreakEven:
    """Where a priced plan is faster than plain decoding, along one quantity.

    Attributes:
        low: least value looked at.
        high: largest value looked at.
        pays: stretches by the estimate's own values; None for the end of what was looked at.
        surely: stretches where it pays even at the slow end of its 90 % interval.
        perhaps: stretches where it does at the fast end.
    """

    low: float
    high: float
    pays: tuple[tuple[Edge | None, Edge | None], ...]
    surely: tuple[Range, ...]
    perhaps: tuple[Range, ...]

    @property
    def always(self) -> bool:
        """It pays, by the estimate's own values, at everything that was looked at."""
        return self.pays == ((None, None),)

    @property
    def never(self) -> bool:
        """It pays nowhere."""
        return not self.pays


def priced_break_even(
    values: Sequence[float], speedups: Interval, *, whole: bool = False
) -> PricedBreakEven:
    """Read the break-even points of a priced plan off its speedups.

    Args:
        values: ascending; of the quantity.
        speedups: over plain decoding at those values, arrays.
        whole: only whole values make sense: edges are the last ones that pay, and lie between two
            values by their ratio rather than their difference.

    Returns:
        Edges interpolated between neighbouring values.
    """
    low, high = float(values[0]), float(values[-1])
    middle, surely, perhaps = (
        _crossings(values, curve, whole) for curve in (speedups.mean, speedups.low, speedups.high)
    )
    pays = tuple(
        (_start(span, low, surely, perhaps), _end(span, high, surely, perhaps)) for span in middle
    )
    return PricedBreakEven(low, high, pays, surely, perhaps)


def _crossings(values: Sequence[float], curve: Any, whole: bool) -> tuple[Range, ...]:
    """Stretches where a curve that is straight between the values is above 1."""
    places = [math.log(x) if whole else float(x) for x in values]
    ranges: list[Range] = []
    start = values[0] if curve[0] > 1.0 else None
    for i in range(1, len(values)):
        before, after = float(curve[i - 1]) - 1.0, float(curve[i]) - 1.0
        if (before > 0.0) == (after > 0.0):
            continue
        place = places[i - 1] + (places[i] - places[i - 1]) * before / (before - after)
        edge = math.exp(place) if whole else place
        if after > 0.0:
            start = math.ceil(edge) if whole else edge
        else:
            assert start is not None
            ranges.append((float(start), float(math.floor(edge)) if whole else edge))
            start = None
    if start is not None:
        ranges.append((float(start), float(values[-1])))
    return tuple(ranges)


def _start(
    span: Range, least: float, surely: tuple[Range, ...], perhaps: tuple[Range, ...]
) -> Edge | None:
    if span[0] <= least:
        return None
    early = [a for a, b in perhaps if a <= span[0] <= b]
    late = [a for a, b in surely if span[0] <= a <= span[1]]
    low = early[0] if early and early[0] > least else None
    return Edge(span[0], low, late[0] if late else None)


def _end(
    span: Range, most: float, surely: tuple[Range, ...], perhaps: tuple[Range, ...]
) -> Edge | None:
    if span[1] >= most:
        return None
    early = [b for a, b in surely if span[0] <= b <= span[1]]
    late = [b for a, b in perhaps if a <= span[1] <= b]
    high = late[-1] if late and late[-1] < most else None
    return Edge(span[1], early[-1] if early else None, high)
