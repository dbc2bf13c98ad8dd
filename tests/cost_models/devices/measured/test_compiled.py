"""What a compiler makes of a device's times: the form, its fit, and the device that it gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.compiled import (
    LEAST,
    LEAST_ERROR,
    CompiledDevice,
    CompiledForm,
    compiled_by,
    fit_compiled,
)
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun, Passes
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.rows import ForwardRow, OpRow, PrefillRow, RoundRow
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import shape

LLAMA: ModelShape = shape("llama-2-7b", "float16")
PASSES = (
    (1, 0.0, 8.0),
    (2, 0.0, 9.0),
    (8, 0.0, 15.0),
    (2, 1.0, 9.0),
    (8, 7.0, 15.0),
    (17, 9.0, 24),
)
"""Of a round: tokens that the target judges, passes of a draft model, seconds of the target's."""


def rounds(
    kernels: tuple[float, float], dispatch: float, others: float, noise: Sequence[float] = ()
) -> list[CompiledRun]:
    """Rounds of two models of 8 and 2 layers, as the form has them but for noise."""
    runs = []
    for place, (batch, (tokens, drafts, target)) in enumerate(product((1, 4), PASSES)):
        spent = target * (1 + batch / 10), drafts * (1.5 + batch / 5)
        passes = [Passes("target", "float32", spent[0], 8.0)]
        passes += [Passes("draft", "float32", spent[1], 2.0 * drafts)] if drafts else []
        rest = 1.0 + 0.1 * tokens
        compiled = sum(k * s for k, s in zip(kernels, spent, strict=True)) + others * rest
        compiled -= dispatch * sum(one.layers for one in passes)
        ratio = compiled / (sum(spent) + rest) * (1.0 + (noise[place] if noise else 0.0))
        runs.append(CompiledRun(f"probe {place}", batch, 100, "", ratio, tuple(passes), rest))
    return runs


@given(
    kernels=st.tuples(st.floats(0.5, 1.5), st.floats(0.5, 1.5)),
    dispatch=st.floats(0.0, 0.3),
    others=st.floats(0.0, 1.0),
)
def test_the_form_is_found_again(
    kernels: tuple[float, float], dispatch: float, others: float
) -> None:
    """Up to what is taken beforehand, which counts where a number adds little to a round."""
    runs = rounds(kernels, dispatch, others)
    form = fit_compiled(runs)
    assert form.kernels["target", "float32"] == pytest.approx(kernels[0], abs=0.03)
    assert form.kernels["draft", "float32"] == pytest.approx(kernels[1], abs=0.03)
    assert form.dispatch == pytest.approx(dispatch, abs=0.03)
    assert form.others == pytest.approx(others, abs=0.2)
    assert form.error == LEAST_ERROR
    for run in runs:
        assert form.ratio(run) == pytest.approx(run.ratio, rel=0.01)


def test_what_the_form_misses_is_reported() -> None:
    """It grows with the noise, and is not below it."""
    draws = np.random.default_rng(0).normal(size=2 * len(PASSES))
    errors = []
    for size in (0.03, 0.1):
        form = fit_compiled(rounds((0.8, 0.6), 0.2, 0.5, list(size * draws)))
        errors.append(form.error)
        assert form.error > size
    assert errors[1] > 2 * errors[0]


@given(seed=st.integers(0, 1000), count=st.integers(1, 4))
def test_few_rounds_predict_with_much_doubt(seed: int, count: int) -> None:
    """Fewer than there are unknowns; what one round says of another is told by none."""
    noise = list(0.05 * np.random.default_rng(seed).normal(size=2 * len(PASSES)))
    runs = rounds((0.6, 0.4), 0.2, 0.5, noise)[:count]
    form = fit_compiled(runs)
    assert form.error >= (0.3 if count == 1 else LEAST_ERROR)
    for run in runs:
        assert form.ratio(run) == pytest.approx(run.ratio, rel=0.2)


def test_priced_rounds_are_fitted_ones() -> None:
    """Also where a pass is held at its least."""
    form = CompiledForm({("target", "float32"): 0.1, ("draft", "float32"): 0.5}, 1.0, 0.5, 0.0)
    (run,) = rounds((0.5, 0.5), 0.1, 0.3)[4:5]
    target, draft = run.passes
    passes = LEAST * target.seconds + max(0.5 * draft.seconds - draft.layers, LEAST * draft.seconds)
    assert form.ratio(run) * run.interpreted == pytest.approx(passes + 0.5 * run.others)
    assert form.factor(("another", "float32")) == pytest.approx(0.3), "the mean of the others"


def table() -> MeasuredTable:
    about = {"model": LLAMA.digest, "dtype": LLAMA.dtype, "batch": 1}
    rows = [
        ForwardRow(s, 0.9 * s, 1.1 * s, 5, tokens=n, context=c, layers=span, skip=skip, **about)
        for c in (0, 100)
        for n, s in ((1, 3.2), (8, 6.4))
        for span, skip in ((None, ()), ((0, 8), ()), (None, Skips.of(range(1, 31)).words))
    ]
    return MeasuredTable(
        "here",
        Provenance("x", "eager", 1, "2026-11-23", 1e12),
        [
            *rows,
            PrefillRow(9.0, 8.0, 10.0, 3, tokens=100, **about),
            OpRow(1.0, 0.9, 1.1, 3, op="accept", width=1, batch=1),
            RoundRow(0.5, 0.4, 0.6, 3, batch=1),
        ],
    )


FORM = CompiledForm({(LLAMA.digest, LLAMA.dtype): 0.75}, dispatch=0.05, others=0.2, error=0.3)


def test_prompts_take_their_measured_share_at_each_batch() -> None:
    runs = [
        replace(run, prompts=0.5 if run.batch == 1 else 0.9, passes=run.passes[:1])
        for run in rounds((0.5, 0.25), 0.1, 0.5)
    ]
    form = fit_compiled(runs)
    assert form.prompts == {1: 0.5, 4: 0.9}
    assert np.allclose(form.prompt_share(np.array([1, 2, 4, 8])), [0.5, 0.5 + 0.4 / 3, 0.9, 0.9])
    assert FORM.prompt_share(3) == 1.0


def device(form: CompiledForm = FORM) -> CompiledDevice:
    return CompiledDevice(MeasuredDevice(table()), "onnxruntime", form)


def test_passes_lose_what_their_layers_cost_in_python() -> None:
    compiled = device()
    assert compiled.forward_seconds(LLAMA, 1, 1, 0).median == pytest.approx(0.75 * 3.2 - 0.05 * 32)
    part = compiled.forward_seconds(LLAMA, 1, 8, 50, layers=(0, 8)).median
    assert part == pytest.approx(0.75 * 6.4 - 0.05 * 8)
    short = compiled.forward_seconds(LLAMA, 1, 8, 50, skips=Skips.of(range(1, 31))).median
    assert short == pytest.approx(0.75 * 6.4 - 0.05 * (32 - 15)), "half a layer for a block"
    both = compiled.forward_seconds(LLAMA, 1, np.array([1, 8]), 0).median
    assert both == pytest.approx([0.8, 3.2])


def test_a_pass_never_comes_out_at_nothing() -> None:
    harsh = CompiledForm(FORM.kernels, dispatch=1.0, others=0.2, error=0.3)
    assert device(harsh).forward_seconds(LLAMA, 1, 1, 0).median == pytest.approx(LEAST * 3.2)


def test_everything_else_is_a_share_and_prompts_stay() -> None:
    compiled, base = device(), MeasuredDevice(table())
    assert compiled.op_seconds("accept", 1, 1).median == pytest.approx(0.2)
    assert compiled.round_seconds(1).median == pytest.approx(0.1)
    assert compiled.prefill_seconds(LLAMA, 1, 100) == base.prefill_seconds(LLAMA, 1, 100)
    assert (compiled.kind, compiled.lane_overlap) == ("measured", 0.0)
    assert compiled.provenance.backend == "onnxruntime"
    assert compiled.basis([LLAMA]).endswith("by onnxruntime told from some that ran")


def test_intervals_are_as_wide_as_both_errors() -> None:
    compiled, base = device(), MeasuredDevice(table())
    whole, own = (one.forward_seconds(LLAMA, 1, 1, 0) for one in (base, compiled))
    for end, its_end in ((whole.low, own.low), (whole.high, own.high)):
        wide = np.hypot(0.75 * (end - whole.median) / own.median, FORM.error)
        assert abs(its_end / own.median - 1.0) == pytest.approx(min(wide, 1.0)), "a difference's"


def test_tables_keep_compiled_rounds(tmp_path: Path) -> None:
    stored, path = table(), tmp_path / "device.json"
    stored.compiled["inductor"] = tuple(rounds((0.8, 0.6), 0.2, 0.5))
    stored.save(path)
    loaded = load_device(path)
    assert isinstance(loaded, MeasuredDevice) and loaded.table.compiled == stored.compiled
    compiled = compiled_by(loaded, "inductor")
    assert isinstance(compiled, CompiledDevice)
    assert compiled.form == fit_compiled(stored.compiled["inductor"])
    assert compiled_by(loaded, "onnxruntime") is loaded, "none of its rounds were timed"
    sheet = load_device("h200")
    assert compiled_by(sheet, "inductor") is sheet


@pytest.mark.parametrize(
    "change",
    [
        {"ratio": 0.0},
        {"ratio": "fast"},
        {"ratio": float("inf")},
        {"batch": True},
        {"others": None},
        {"others": -1.0},
        {"passes": []},
        {"passes": 3},
        {"passes": [{"model": "m", "dtype": "float32", "seconds": float("nan"), "layers": 2}]},
        {"passes": [{"model": None, "dtype": "float32", "seconds": 1.0, "layers": 2}]},
        {"passes": [{"model": "m", "dtype": "float32", "seconds": 1.0}]},
        {"turns": 3},
    ],
)
def test_damaged_rounds_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    stored, path = table(), tmp_path / "device.json"
    stored.compiled["inductor"] = tuple(rounds((0.8, 0.6), 0.2, 0.5))
    stored.save(path)
    document = json.loads(path.read_text())
    document["compiled"]["inductor"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="does not fit the schema"):
        load_device(path)
