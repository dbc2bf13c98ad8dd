"""Measured tables of devices with known laws: fitted, stepped over cliffs, extended outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.fitted import FittedForm, fit_form
from specplan.cost_models.devices.measured.table import (
    ForwardRow,
    MeasuredTable,
    PrefillRow,
    Provenance,
)
from specplan.cost_models.intervals import Seconds
from tests.cost_models.models.public_shapes import shape

HERE = Provenance("synthetic", "eager", 1, "2026-11-21", 8e10)
MODEL = shape("llama-2-7b")
LAW = FittedForm(MODEL.digest, MODEL.dtype, 5e-6, 1.6e12, 2.0e14, 1.8, 0.0, 0.0, 0)
TOKENS = (1, 2, 4, 8, 16, 24, 48, 96, 192, 384, 768)
Law = Callable[[int, int, int], float]


def smooth(batch: int, tokens: int, context: int) -> float:
    return float(LAW.forward_seconds(MODEL, batch, tokens, context))


def tiled(tile: int, step: float) -> Law:
    """Every pass over more than `tile` rows runs a kernel that is slower (or faster)."""
    return lambda b, n, s: smooth(b, n, s) * (1.0 if b * n <= tile else 1.0 + step)


ERRORS = (-1.0, 0.5, 0.0, 1.0, -0.5)
"""Of the passes of a row, in units of the noise."""


def device(
    law: Law,
    tokens: tuple[int, ...] = TOKENS,
    batches: tuple[int, ...] = (1, 4),
    noise: float = 0.0,
) -> MeasuredDevice:
    table = MeasuredTable("synthetic", HERE)
    about = {"model": MODEL.digest, "dtype": MODEL.dtype}
    for b in batches:
        for s in (128, 1024):
            for n in tokens:
                t = law(b, n, s)
                turn = len(table.rows) % 5  # no two neighbours are slow in the same pass
                errors = (ERRORS * 2)[turn : turn + 5]
                passes = tuple(t * (1.0 + noise * e) for e in errors)
                table.add(ForwardRow(t, t, t, 50, passes, batch=b, tokens=n, context=s, **about))
        for n in (64, 256):
            t = float(LAW.prefill_seconds(MODEL, b, n))
            table.add(PrefillRow(t, t, t, 5, (t,) * 5, batch=b, tokens=n, **about))
    assert table.fit(MODEL) is not None
    return MeasuredDevice(table)


def test_the_law_is_found_again() -> None:
    fit = device(smooth).table.fits[MODEL.digest, MODEL.dtype]
    assert fit.mean_error < 0.005 and fit.error < 0.01
    assert fit.flops_per_second == pytest.approx(LAW.flops_per_second, rel=0.05)
    for b, n, s in ((1, 1000, 128), (4, 500, 4096), (32, 4, 1024)):
        seconds = float(fit.forward_seconds(MODEL, b, n, s))
        assert seconds == pytest.approx(smooth(b, n, s), rel=0.05)
    assert fit.rows == len(device(smooth).table.rows)


def test_too_few_rows_have_no_fit() -> None:
    rows = [row for row in device(smooth).table.rows.values() if isinstance(row, ForwardRow)]
    assert fit_form(MODEL, rows[:4]) is None
    assert fit_form(MODEL, [row for row in rows if row.tokens <= 2 and row.batch == 1]) is None


@given(tokens=st.integers(1, 768), batch=st.integers(1, 4), context=st.integers(128, 1024))
@settings(max_examples=60)
def test_smooth_devices_are_interpolated(tokens: int, batch: int, context: int) -> None:
    seconds = SMOOTH.forward_seconds(MODEL, batch, tokens, context)
    assert not seconds.extrapolated
    assert seconds.median == pytest.approx(smooth(batch, tokens, context), rel=0.08)


SMOOTH = device(smooth)


@given(
    place=st.integers(
        0, 4
    ),  # where reading the weights takes the time: no knee can pass for a step
    step=st.one_of(st.floats(0.3, 0.6), st.floats(-0.4, -0.3)),
    noise=st.floats(0.0, 0.01),
    share=st.floats(0.01, 0.99),
    edge=st.floats(0.01, 0.99),
)
@settings(max_examples=80)
def test_cliffs_are_steps(place: int, step: float, noise: float, share: float, edge: float) -> None:
    """Wherever the kernel changes between two anchors, its time lies in the interval."""
    left, right = TOKENS[place], TOKENS[place + 1]
    tile = left + math.floor(edge * (right - left))
    law = tiled(tile, step)
    stepped = device(law, batches=(1,), noise=noise)
    tokens = left + share * (right - left)
    before = stepped.forward_seconds(MODEL, 1, left, 128)
    after = stepped.forward_seconds(MODEL, 1, right, 128)
    between = stepped.forward_seconds(MODEL, 1, tokens, 128)
    if left < tokens < right:
        assert between.median in (before.median, after.median), "nothing is smoothed"
        assert between.low <= min(before.low, after.low)
        assert between.high >= max(before.high, after.high)
        ends = sorted((law(1, left, 128), law(1, right, 128)))
        assert between.low <= ends[0] and ends[1] <= between.high
    assert before.median == law(1, left, 128) and after.median == law(1, right, 128)


def test_noise_is_no_cliff() -> None:
    """The same step, seen with a spread of its own size, is interpolated."""
    law = tiled(30, 0.3)
    sure, unsure = device(law, batches=(1,)), device(law, batches=(1,), noise=0.5)
    ends = law(1, 24, 128), law(1, 48, 128)
    assert sure.forward_seconds(MODEL, 1, 36, 128).median in ends
    assert unsure.forward_seconds(MODEL, 1, 36, 128).median == pytest.approx(sum(ends) / 2)


def test_batches_step_too() -> None:
    stepped = device(tiled(20, 0.4))
    ends = [stepped.forward_seconds(MODEL, batch, 8, 128).median for batch in (1, 4)]
    between = stepped.forward_seconds(MODEL, 2, 8, 128)
    assert between.median in ends and between.low <= ends[0] < ends[1] <= between.high


@given(far=st.floats(1.01, 16.0), further=st.floats(1.1, 4.0))
@settings(max_examples=40)
def test_outside_it_goes_along_the_fit_and_widens(far: float, further: float) -> None:
    def width(value: Seconds) -> float:
        return math.log(value.high / value.low)

    for ask in (
        lambda x: (SMOOTH.forward_seconds(MODEL, 4, 768 * x, 1024), (4, 768 * x, 1024)),
        lambda x: (SMOOTH.forward_seconds(MODEL, 4 * x, 8, 1024), (4 * x, 8, 1024)),
        lambda x: (SMOOTH.forward_seconds(MODEL, 1, 8, 1024 * x), (1, 8, 1024 * x)),
        lambda x: (SMOOTH.forward_seconds(MODEL, 1, 8, 128 / x), (1, 8, 128 / x)),
    ):
        near, place = ask(far)
        beyond, _ = ask(far * further)
        assert near.extrapolated and beyond.extrapolated
        assert near.median == pytest.approx(smooth(*place), rel=0.12)
        assert near.low < smooth(*place) < near.high
        assert width(beyond) > width(near) > 0.05
    assert SMOOTH.prefill_seconds(MODEL, 1, round(256 * far)).extrapolated == (
        round(256 * far) > 256
    )


def test_arrays_are_the_single_points() -> None:
    stepped = device(tiled(100, 0.3))
    batch = np.array([[1.0], [2.0], [4.0], [9.0]])
    context = np.array([10.0, 128.0, 500.0, 1024.0, 5000.0])
    for tokens in (1, 7, 30, 70, 96, 900):
        seconds = stepped.forward_seconds(MODEL, batch, tokens, context)
        assert seconds.median.shape == (4, 5) and seconds.extrapolated is True  # type: ignore[attr-defined]
        for (i, j), value in np.ndenumerate(seconds.median):
            one = stepped.forward_seconds(MODEL, batch[i, 0], tokens, context[j])
            assert (one.median, one.low, one.high) == pytest.approx(
                (value, seconds.low[i, j], seconds.high[i, j]),
                rel=1e-12,  # type: ignore[index]
            )
            assert isinstance(one.median, float)
    inside = stepped.forward_seconds(MODEL, np.array([1, 4]), np.array([3, 96]), 500)
    assert inside.extrapolated is False
    prefill = stepped.prefill_seconds(MODEL, np.array([1, 2]), 100)
    assert list(prefill.median) == [  # type: ignore[call-overload]
        stepped.prefill_seconds(MODEL, b, 100).median for b in (1, 2)
    ]


def test_single_points_are_remembered() -> None:
    seconds = SMOOTH.forward_seconds(MODEL, 1, 5, 200)
    assert SMOOTH.forward_seconds(MODEL, 1, 5, 200) is seconds


def test_fits_are_kept_in_the_file(tmp_path: Path) -> None:
    table = device(tiled(100, 0.3)).table
    table.refined = 3
    table.save(tmp_path / "t.json")
    again = MeasuredTable.load(tmp_path / "t.json")
    assert again.fits == table.fits and again.scatter == table.scatter
    assert again.rows == table.rows and again.refined == 3 and again.drift == table.drift
    ask = (MODEL, 2, 400, 3000)
    assert MeasuredDevice(again).forward_seconds(*ask) == MeasuredDevice(table).forward_seconds(
        *ask
    )
