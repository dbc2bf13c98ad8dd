"""Interpolation of measured factors: exact where it can be, honest about its errors elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.devices.silicon.grid import Grid

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WIDTHS = (256, 512, 1024, 2048, 4096)


def of_law(law, skip=lambda m, n: False):
    cells = [(m, n) for m in ROWS for n in WIDTHS if not skip(m, n)]
    return Grid.of(
        [np.array([m for m, _ in cells]), np.array([n for _, n in cells])],
        np.array([law(m, n) for m, n in cells]),
        noise_axis=0,
    )


@given(st.floats(1, 256), st.floats(256, 4096), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_a_product_of_powers_is_met_exactly_everywhere_inside(m, n, a, b):
    grid = of_law(lambda x, y: 1.7 * x**a * y**b)
    reading = grid.at(m, n)
    assert reading.factor == pytest.approx(1.7 * m**a * n**b, rel=1e-9)
    assert not reading.outside
    assert max(grid.repeat_error, *grid.axis_errors) < 1e-9


@pytest.mark.parametrize("m", ROWS)
def test_anchors_are_met_exactly_whatever_was_measured(m):
    jagged = {(x, y): 1.0 + ((x * 31 + y * 7) % 97) / 97 for x in ROWS for y in WIDTHS}
    grid = of_law(lambda x, y: jagged[x, y])
    for n in WIDTHS:
        assert grid.at(m, n).factor == pytest.approx(jagged[m, n])


def test_arrays_give_what_their_elements_give_and_curves_what_the_grid_gives():
    grid = of_law(lambda m, n: 1.0 + 0.3 * np.sin(m) + n / 9000)
    m, n = np.array([1.0, 3, 17, 900]), np.array([[300.0], [4096], [5000]])
    both = grid.at(m, n)
    assert both.factor.shape == both.error.shape == both.outside.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        one = grid.at(m[j], n[i, 0])
        assert both.factor[i, j] == pytest.approx(one.factor)
        assert both.error[i, j] == pytest.approx(one.error)
        assert both.outside[i, j] == one.outside
        curve = grid.fixed(n[i, 0]).at(m[j])
        assert curve.factor == pytest.approx(one.factor)
        assert curve.outside == one.outside


def test_beyond_the_anchors_the_edge_holds_is_marked_and_is_less_sure_the_farther_out():
    grid = of_law(lambda m, n: m**0.3)
    near, far = grid.at(512, 1024), grid.at(4096, 1024)
    assert near.outside and far.outside
    assert near.factor == far.factor == pytest.approx(256**0.3)
    assert far.error > near.error > grid.at(256, 1024).error
    # one factor of two beyond the edge, the law has moved on by 2^0.3 - 1
    assert near.error == pytest.approx(2**0.3 - 1, rel=0.01)


def test_halfway_between_anchors_is_less_sure_than_on_them():
    rng = np.random.default_rng(0)
    grid = of_law(lambda m, n: np.exp(0.1 * rng.standard_normal()))
    on, between = grid.at(16, 1024), grid.at(16 * 2**0.5, 1024 * 2**0.5)
    assert between.error > on.error == pytest.approx(grid.repeat_error)


def test_holes_take_the_last_value_on_the_steadiest_axis_and_count_as_outside():
    grid = of_law(lambda m, n: n * m**0.1, skip=lambda m, n: (m, n) == (256, 4096))
    hole = grid.at(256, 4096)
    assert hole.outside
    assert hole.factor == pytest.approx(4096 * 128**0.1)
    assert hole.error == pytest.approx(2**0.1 - 1, rel=0.01)
    assert not grid.at(128, 2048).outside
    assert grid.at(200, 4096).outside


def test_cells_measured_several_times_have_their_median():
    grid = Grid.of([np.array([1, 1, 1, 2, 4])], np.array([1.0, 9.0, 1.1, 2.0, 4.0]), 0)
    assert grid.at(1).factor == pytest.approx(1.1)


def test_scatter_is_found_again():
    """Cells of log-normal scatter 0.05: 90 % of them lie within 1.645 times as much."""
    rng = np.random.default_rng(0)
    m, n = np.meshgrid(2.0 ** np.arange(24), 2.0 ** np.arange(40), indexing="ij")
    factors = np.exp(0.05 * rng.standard_normal(m.shape))
    grid = Grid.of([m.ravel(), n.ravel()], factors.ravel(), noise_axis=0)
    assert grid.repeat_error == pytest.approx(1.645 * 0.05, rel=0.15)
