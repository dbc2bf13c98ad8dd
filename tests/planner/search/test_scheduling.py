"""Schedules: the best round of every cell, as guards that select exactly those cells' rounds."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.plan import Plan
from specplan.ir.schedule import select_round
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.planner.search.comparing import TIE
from specplan.planner.search.composing import (
    MOST_ROUNDS,
    Grid,
    best_rounds,
    guards,
)
from specplan.planner.templates.merged_rounds import scheduled
from tests.cost_models.rounds.test_pricing import PLAIN
from tests.plan_texts import greedy_chain

NAMES = ("plain", "chain2", "chain4", "chain8")
PLANS: dict[str, Plan] = {"plain": parse_plan(PLAIN)} | {
    name: greedy_chain(int(name[-1])) for name in NAMES[1:]
}


@st.composite
def choices(draw: st.DrawFn) -> tuple[Grid, list[list[str]]]:
    batches = draw(st.lists(st.integers(1, 512), min_size=1, max_size=5, unique=True))
    contexts = draw(st.lists(st.integers(1, 1 << 17), min_size=1, max_size=4, unique=True))
    rows = [[draw(st.sampled_from(NAMES)) for _ in contexts] for _ in batches]
    return Grid(tuple(sorted(batches)), tuple(map(float, sorted(contexts)))), rows


@given(choices())
@settings(max_examples=60)
def test_guards_select_the_rounds_of_their_cells(case: tuple[Grid, list[list[str]]]) -> None:
    grid, rows = case
    used = {name: PLANS[name] for row in rows for name in row}
    plan = scheduled("several", used, guards(grid, rows))
    assert parse_plan(print_plan(plan)) == plan
    for (i, batch), (j, context) in product(enumerate(grid.batches), enumerate(grid.contexts)):
        selected = select_round(plan, batch=batch, context=int(context))
        neighbours = {rows[i][j]}
        if any(abs(np.log(other / context)) < 0.02 for other in grid.contexts if other != context):
            continue  # bounds are rounded to three figures
        if any(abs(np.log(other / batch)) < 0.02 for other in grid.batches if other != batch):
            continue
        assert selected in neighbours


def test_a_load_that_hovers_at_a_bound_does_not_switch() -> None:
    grid = Grid((8, 64), (1024.0,))
    plan = scheduled(
        "two", {n: PLANS[n] for n in ("chain4", "plain")}, guards(grid, [["chain4"], ["plain"]])
    )
    current = select_round(plan, batch=22, context=1024)
    assert current == "chain4"
    for batch in (23, 22, 24, 22, 23):  # the bound is 22.6
        current = select_round(plan, batch=batch, context=1024, current=current)
        assert current == "chain4"
    assert select_round(plan, batch=26, context=1024, current=current) == "plain"


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10_000))
def test_no_single_round_is_better(candidates: int, cells: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0.5, 2.0, (candidates, cells))
    choice = best_rounds(costs)
    value = costs[choice, np.arange(cells)].mean()
    assert value <= costs.mean(axis=1).min() + 1e-12
    assert len(set(choice.tolist())) <= MOST_ROUNDS
    assert value >= costs.min(axis=0).mean() - 1e-12
    if value > (1.0 - TIE) * costs.mean(axis=1).min():
        assert len(set(choice.tolist())) == 1


def test_a_cell_that_only_one_candidate_may_serve_is_served() -> None:
    costs = np.array([[1.0, 1.0, np.inf], [3.0, 3.0, 3.0], [np.inf, 0.2, 9.0]])
    choice = best_rounds(costs)
    assert np.isfinite(costs[choice, np.arange(3)]).all()
    assert choice.tolist() == [0, 2, 1]
