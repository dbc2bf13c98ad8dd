"""How well predictions hold: error, bias, worst row, sign and rank agreement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from published_rows.row import Prediction

NEAR_ONE = 0.10
"""A speedup within this of 1 has no sign to get right."""


@dataclass(frozen=True)
class Score:
    """Errors are fractions of the published value.

    Attributes:
        system, metric, hardware: what is scored together.
        group: whether `system` names a group of systems, whose rows are scored above too.
        count: rows scored; calibration rows are not among them.
        mape: mean of |predicted / published - 1|.
        worst: the largest of them.
        bias: mean of predicted / published - 1.
        median_error: median of |predicted / published - 1|.
        worst_row: which row that is, with its numbers.
        calibration_count: rows that constants were set with.
        sign_agreement: part of the rows with |speedup - 1| > 0.10 on whose right side of 1 the
            prediction lies; None where the metric is no speedup or no such row.
        kendall_tau: rank agreement (tau-b) within a group; None outside of groups.
    """

    system: str
    metric: str
    hardware: str
    group: bool
    count: int
    mape: float | None
    worst: float | None
    bias: float | None
    median_error: float | None
    worst_row: str
    calibration_count: int
    sign_agreement: float | None
    kendall_tau: float | None


def scores(predictions: Iterable[Prediction]) -> list[Score]:
    """One score per (system, metric, hardware), then one per (group, metric, hardware)."""
    systems: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    groups: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    for item in predictions:
        systems[item.row.system, item.row.metric, item.row.hardware].append(item)
        if item.group:
            groups[item.group, item.row.metric, item.row.hardware].append(item)
    return [_score(key, items, False) for key, items in sorted(systems.items())] + [
        _score(key, items, True) for key, items in sorted(groups.items())
    ]


def _score(key: tuple[str, str, str], items: Sequence[Prediction], grouped: bool) -> Score:
    scored = [item for item in items if not item.calibration]
    errors = [item.error for item in scored]
    sizes = [abs(error) for error in errors]
    worst = max(scored, key=lambda item: abs(item.error), default=None)
    return Score(
        *key,
        group=grouped,
        count=len(scored),
        mape=fmean(sizes) if sizes else None,
        worst=max(sizes, default=None),
        bias=fmean(errors) if errors else None,
        median_error=median(sizes) if sizes else None,
        worst_row="" if worst is None else _row_text(worst),
        calibration_count=len(items) - len(scored),
        sign_agreement=_signs(scored) if key[1].startswith("speedup") else None,
        kendall_tau=_kendall(scored) if grouped else None,
    )


def _row_text(item: Prediction) -> str:
    return f"{item.row.label}: {item.predicted:.4g} for {item.row.number:.4g} ({item.error:+.1%})"


def _signs(items: Sequence[Prediction]) -> float | None:
    clear = [i for i in items if abs((i.row.number or 1.0) - 1.0) > NEAR_ONE]
    if not clear:
        return None
    return fmean((i.predicted > 1.0) == ((i.row.number or 1.0) > 1.0) for i in clear)


def _kendall(items: Sequence[Prediction]) -> float | None:
    """Kendall's tau-b: concordant less discordant pairs, over pairs that are not tied."""
    agree = ours = theirs = 0
    for a, b in combinations(items, 2):
        left = _sign(a.predicted - b.predicted)
        right = _sign((a.row.number or 0.0) - (b.row.number or 0.0))
        agree += left * right
        ours += left * left
        theirs += right * right
    return agree / (ours * theirs) ** 0.5 if ours and theirs else None


def _sign(value: float) -> int:
    return (value > 0.0) - (value < 0.0)
