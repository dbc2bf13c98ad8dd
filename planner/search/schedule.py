"""Schedules: each range of batch sizes and contexts gets the round that is best there.

Rounds are added one at a time, each the one that gains most beside those already there, until the
next would gain less than a tie. The grid's cells are then cut into ranges: bounds lie at the
geometric mean of neighbouring grid values, and hysteresis keeps a load that hovers at a bound from
switching back and forth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from specplan.ir.plan import Guard, Plan, Schedule
from specplan.ir.rules.verify import check_plan
from specplan.ir.values import Text
from specplan.planner.search.comparing import TIE
from specplan.planner.templates.merged_rounds import merge_plans, round_names

HYSTERESIS = 0.1
"""A bound must be passed by this fraction before a switch is undone."""
MOST_ROUNDS = 4

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The loads that plans are priced at.

    Attributes:
        batches: batch sizes, rising.
        contexts: mean texts of the requests, in tokens, rising.
    """

    batches: tuple[int, ...]
    contexts: tuple[float, ...]


def best_rounds(costs: Floats) -> Integers:
    """Which candidate runs in each cell.

    Args:
        costs: [candidates, cells], time per token, by the least of each cell where all cells are
            to count alike; infinite where a limit forbids a candidate. A candidate may be the only
            one of a cell.

    Returns:
        Candidate of each cell, [cells]; at most `MOST_ROUNDS` different ones, and a single one
        unless each more lowers the mean cost by at least `TIE`.
    """
    chosen: list[int] = []
    best = np.full(costs.shape[1], np.inf)
    while len(chosen) < MOST_ROUNDS:
        together = np.minimum(costs, best)
        missing = np.isinf(together).sum(axis=1)
        means = np.where(np.isfinite(together), together, 0.0).mean(axis=1)
        order = np.lexsort((np.arange(len(costs)), means, missing))
        first = int(order[0])
        fewer = missing[first] < np.isinf(best).sum()
        if chosen and not fewer and means[first] > (1.0 - TIE) * best[np.isfinite(best)].mean():
            break
        chosen.append(first)
        best = together[first]
    rows = costs[chosen]
    found: Integers = np.array(chosen, dtype=np.int64)[np.argmin(rows, axis=0)]
    return found


def guards(grid: Grid, choice: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Conditions in order, each with its round; the last one's condition is empty.

    Args:
        grid: the loads.
        choice: round by batch and context, [batches][contexts].
    """
    found: list[tuple[str, str]] = []
    rows = [tuple(row) for row in choice]
    bounds = [*(_between(a, b) for a, b in zip(grid.batches, grid.batches[1:], strict=False)), None]
    for row, same in groupby(zip(rows, bounds, strict=True), key=lambda pair: pair[0]):
        upper = list(same)[-1][1]
        batch = "" if upper is None else f"batch <= {upper:g}"
        edges = zip(grid.contexts, grid.contexts[1:], strict=False)
        limits = [*(_between(a, b) for a, b in edges), None]
        for name, part in groupby(zip(row, limits, strict=True), key=lambda pair: pair[0]):
            last = list(part)[-1][1]
            context = "" if last is None else f"context <= {last:g}"
            found.append((" and ".join(filter(None, (batch, context))), name))
    return tuple(found)


def scheduled(name: str, plans: dict[str, Plan], conditions: Sequence[tuple[str, str]]) -> Plan:
    """One plan of several plans' rounds; where a plan has a schedule, it holds within its loads.

    Args:
        name: of the new plan.
        plans: by the name that its round gets, as in `merge_plans`.
        conditions: as `guards` gives them.
    """
    merged = merge_plans(plans)
    every = [pair for condition, given in conditions for pair in _within(condition, given, plans)]
    *before, (_, otherwise) = every
    guarded = tuple(Guard(formula=Text(condition), round=given) for condition, given in before)
    schedule = Schedule(guards=guarded, otherwise=otherwise, hysteresis=HYSTERESIS)
    return check_plan(replace(merged, name=name, schedule=schedule))


def _within(condition: str, given: str, plans: Mapping[str, Plan]) -> Iterator[tuple[str, str]]:
    """Conditions of a plan's rounds where the plan itself runs under a condition."""
    plan = plans[given]
    called = round_names(given, plan)
    if plan.schedule is None:
        yield condition, called[plan.rounds[0].name]
        return
    for guard in plan.schedule.guards:
        formula = f"{condition} and ({guard.formula})" if condition else str(guard.formula)
        yield formula, called[guard.round]
    yield condition, called[plan.schedule.otherwise]


def _between(a: float, b: float) -> float:
    return float(f"{(a * b) ** 0.5:.3g}")
