"""Intervals of measured times hold what another moment brings, as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from specplan.cost_models.devices.measured.rows import RoundRow
from specplan.cost_models.devices.measured.spread import (
    UNKNOWN_DRIFT,
    bounds,
    drift_half_width,
    own_half_width,
    pass_scatter,
    scale,
    scales,
)
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance


@pytest.mark.parametrize("count", [3, 4, 5, 6, 8, 9, 12, 30])
def test_the_scale_is_unbiased_for_few_normal_numbers(count: int) -> None:
    """Croux and Rousseeuw (1992), the factors of the median absolute deviation."""
    draws = np.random.default_rng(count).normal(size=(20000, count))
    assert np.mean(scales(draws)) == pytest.approx(1.0, abs=0.02)
    assert scales(draws)[0] == scale(draws[0])


def test_bursts_do_not_widen_the_scale() -> None:
    calm = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    assert scale([*calm[:-1], 3.0]) < 2 * scale(calm) < 0.05


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(("passes", "grid"), [(4, 6), (4, 4), (6, 2), (4, 1)])
def test_rows_hold_nine_tenths_of_other_runs(passes: int, grid: int, lasting: bool) -> None:
    """A machine that drifts by 5 % between moments, or between passes over the grid.

    A run lasts as long as a pass over the grid. Rows are 2 % off by themselves in every pass.
    """
    rng = np.random.default_rng(7)
    covered, trials = 0, 600
    for _ in range(trials):
        slowness = 0.05 * rng.normal(size=(1 if lasting else grid, 1, passes + 1))
        slowness = 1.0 + np.broadcast_to(slowness, (grid, 1, passes + 1))
        cells = slowness[..., :-1] * (1 + 0.02 * rng.normal(size=(grid, 20, passes)))
        drift, scatter = drift_half_width(cells), pass_scatter(cells)
        centre = float(np.median(cells[0, 0]))
        own = own_half_width(centre, passes, (0.9, 1.1), 50, scatter)
        low, high = bounds(centre, own, drift)
        covered += low <= slowness[..., -1].mean() <= high
    assert 0.87 < covered / trials < 0.99


def test_one_pass_is_as_sure_as_its_runs() -> None:
    """Quartiles of +-0.6745 sd: the median of n runs has a standard error of 1.2533 sd / sqrt n."""
    one = own_half_width(1.0, 1, (1 - 0.6745, 1 + 0.6745), 100, 0.5)
    assert one == pytest.approx(1.6449 * 1.2533 / 10, rel=1e-3)
    assert own_half_width(2.0, 0, (2.0, 2.0), 1, 0.5) == 0.0


def test_drift_is_what_rows_have_in_common() -> None:
    slow = np.array([0.9, 1.1, 1.0, 1.1, 0.9, 1.0])
    scales = np.array([[1.0], [5.0], [2.0]])
    steady = scales * np.ones(6)
    assert drift_half_width([steady]) == 0.0 == pass_scatter([steady])
    together = scales * slow
    assert drift_half_width([together]) > 0.15 and pass_scatter([together]) < 1e-12
    opposed = np.stack([slow, 2.0 - slow, np.ones(6)])
    assert drift_half_width([opposed]) < 1e-9 and pass_scatter([opposed]) > 0.04
    assert drift_half_width([together[:, :2]]) == UNKNOWN_DRIFT == drift_half_width([])
    assert pass_scatter([]) == 0.0


@pytest.mark.parametrize("passes", [4, 5, 8])
def test_the_scatter_of_many_rows_is_that_of_each(passes: int) -> None:
    rng = np.random.default_rng(passes)
    cells = (1.0 + 0.05 * rng.normal(size=(6, 40, passes))) * (1 + 0.2 * rng.normal(size=(6, 1, 1)))
    assert pass_scatter(list(cells)) == pytest.approx(0.05, rel=0.25)


def test_bounds_are_ratios() -> None:
    assert bounds(1.0, 3.0, 4.0) == (1.0 / 6.0, 6.0)
    assert bounds(2.0, 0.0, 0.1) == (2.0 / 1.1, 2.0 * 1.1)
    assert bounds(0.0, 0.25, 0.5) == (0.0, 0.25)


def test_passes_join_to_their_median() -> None:
    here = Provenance("x", "eager", 1, "2026-11-21", 1e9)
    table = MeasuredTable("here", here)
    for seconds in (1.9, 2.2, 2.0):
        table.join(RoundRow(seconds, 0.5 * seconds, 2 * seconds, 10, passes=(seconds,), batch=1))
    (row,) = table.rows.values()
    assert row.seconds == 2.0 and row.runs == 30 and row.passes == (1.9, 2.2, 2.0)
    assert row.low == pytest.approx(6.1 / 6) and row.high == pytest.approx(12.2 / 3)
    time = row.time(0.1, 0.05)
    assert time.high > row.seconds + row.own(0.05) and time.low * time.high == pytest.approx(4.0)
