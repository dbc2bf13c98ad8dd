"""What a compiler makes of a device's times: the form, its fit, and the device that it gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.compiled import (
    CompiledDevice,
    compiled_by,
)
from specplan.cost_models.devices.measured.compiled_form import (
    LEAST_ERROR,
    CompiledForm,
    fit_compiled,
)
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun, Passes
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.interpolation import Axis
from specplan.cost_models.devices.measured.rows import ForwardRow, OpRow, PrefillRow, RoundRow
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import shape

LLAMA: ModelShape = shape("llama-2-7b", "float16")
PASSES = (
    (1, ()),
    (3, ()),
    (11, ()),
    (2, (2,)),
    (8, (2, 1, 1, 1, 1, 1, 1)),
    (17, (2, 8)),
)
"""Of a round: tokens that the target judges, and those of each pass of a draft model."""
TARGET, DRAFT = ("target", "float32"), ("draft", "float32")


def rounds(
    models: tuple[float, float],
    several: float,
    token: float,
    others: float,
    noise: Sequence[float] = (),
    *,
    moves: float = 3.0,
    sources: float = 0.7,
) -> list[CompiledRun]:
    """Rounds of two models, as the form has them but for noise; the last ones draft trees.

    Where the target runs alone, over several tokens, they were looked up.
    """
    shares = dict(zip((TARGET, DRAFT), models, strict=True))
    truth = CompiledForm(shares, several, token, others, moves, sources)
    runs = []
    for place, (batch, (judged, drafts)) in enumerate(product((1, 4), PASSES)):
        widths = [(TARGET, judged, 8.0), *((DRAFT, width, 1.5) for width in drafts)]
        passes = [Passes(*model, 1, batch * width, single) for model, width, single in widths]
        copied = 0.9 * batch if judged > 1 and not drafts else 0.0
        rest = 1.0 + 0.1 * judged + copied, 0.5 * (8 in drafts), copied
        run = CompiledRun(f"probe {place}", "", batch, 100, "", 1.0, 1.0, tuple(passes), *rest)
        seconds = truth.seconds(run) * (1.0 + (noise[place] if noise else 0.0))
        runs.append(replace(run, seconds=seconds))
    return runs


@given(
    models=st.tuples(st.floats(0.2, 1.5), st.floats(0.2, 1.5)),
    several=st.floats(0.0, 0.5),
    token=st.floats(0.0, 0.2),
    others=st.floats(0.0, 1.0),
    moves=st.floats(0.0, 8.0),
    sources=st.floats(0.0, 2.0),
)
def test_the_form_is_fitted_again(
    models: tuple[float, float],
    several: float,
    token: float,
    others: float,
    moves: float,
    sources: float,
) -> None:
    """Up to what is taken beforehand, which counts where a number adds little to a round."""
    runs = rounds(models, several, token, others, moves=moves, sources=sources)
    form = fit_compiled(tuple(runs))
    assert form.models[TARGET] == pytest.approx(models[0], rel=0.03, abs=0.03)
    assert form.models[DRAFT] == pytest.approx(models[1], rel=0.1, abs=0.03)
    assert form.several == pytest.approx(several, abs=0.05)
    assert form.token == pytest.approx(token, abs=0.01)
    assert form.others == pytest.approx(others, abs=0.3)
    assert form.moves == pytest.approx(moves, rel=0.1, abs=0.5)
    assert form.sources == pytest.approx(sources, rel=0.1, abs=0.3)
    assert LEAST_ERROR < form.error < 0.07, "so few rounds are no proof"
    for run in runs:
        assert form.seconds(run) == pytest.approx(run.seconds, rel=0.01)


def test_what_the_form_misses_is_reported() -> None:
    """It grows with the noise, and is not below it."""
    draws = np.random.default_rng(0).normal(size=2 * len(PASSES))
    errors = []
    for size in (0.03, 0.15):
        form = fit_compiled(tuple(rounds((0.8, 0.6), 0.2, 0.05, 0.5, list(size * draws))))
        errors.append(form.error)
        assert form.error > size
    assert errors[1] > 2 * errors[0]


@given(seed=st.integers(0, 1000), count=st.integers(1, 4))
def test_few_rounds_predict_with_much_doubt(seed: int, count: int) -> None:
    """Fewer than there are unknowns; what one round says of another is told by none."""
    noise = list(0.05 * np.random.default_rng(seed).normal(size=2 * len(PASSES)))
    runs = rounds((0.7, 0.3), 0.4, 0.02, 0.5, noise)[:count]
    form = fit_compiled(tuple(runs))
    assert form.error >= (0.3 if count == 1 else LEAST_ERROR)
    for run in runs:
        assert form.seconds(run) == pytest.approx(run.seconds, rel=0.2)


def test_a_pass_has_a_fixed_part_and_one_for_each_token() -> None:
    numbers = {"several": 0.2, "token": 0.05, "others": 0.5, "moves": 3.0, "sources": 0.7}
    form = CompiledForm({TARGET: 0.5, DRAFT: 0.1}, **numbers)
    widths = np.array([1, 2, 5])
    assert form.pass_seconds(10.0, widths, TARGET) == pytest.approx([5.0, 6.25, 7.0])
    assert form.pass_seconds(10.0, 1.5, TARGET) == pytest.approx(5.625), "one or two"
    assert form.pass_seconds(10.0, 1, ("another", "float32")) == pytest.approx(3.0), "the mean"
    copied, drafted = rounds((0.5, 0.1), 0.2, 0.05, 0.5)[1:4:2]
    target, draft = 0.5 * 8.0 * 1.25, 0.1 * 1.5 * 1.25
    assert form.seconds(drafted) == pytest.approx(target + draft + 0.5 * drafted.others)
    target, rest = 0.5 * 8.0 * 1.3, copied.others - 0.9
    assert form.seconds(copied) == pytest.approx(target + 0.7 * 0.9 + 0.5 * rest)


def table(slope: float = 0.0) -> MeasuredTable:
    """Of passes that take so many seconds more per token of text."""
    about = {"model": LLAMA.digest, "dtype": LLAMA.dtype, "batch": 1}
    rows = [
        ForwardRow(s, 0.9 * s, 1.1 * s, 5, tokens=n, context=c, layers=span, skip=skip, **about)
        for c in (0, 100)
        for n, s in ((1, 3.2 + slope * c), (8, 6.4 + slope * c))
        for span, skip in ((None, ()), ((0, 8), ()), (None, Skips.of(range(1, 31)).words))
    ]
    return MeasuredTable(
        "here",
        Provenance("x", "eager", 1, "2026-11-23", 1e12),
        [
            *rows,
            PrefillRow(9.0, 8.0, 10.0, 3, tokens=100, **about),
            OpRow(1.0, 0.9, 1.1, 3, op="accept", width=1, batch=1),
            OpRow(1.0, 0.9, 1.1, 3, op="commit:tree", width=1, batch=1),
            OpRow(1.0, 0.9, 1.1, 3, op="lookup", width=1, batch=1),
            RoundRow(0.5, 0.4, 0.6, 3, batch=1),
        ],
    )


FORM = CompiledForm(
    {(LLAMA.digest, LLAMA.dtype): 0.5},
    several=0.2,
    token=0.05,
    others=0.2,
    moves=3.0,
    sources=0.7,
    error=0.3,
)


def test_prompts_take_their_measured_share_at_each_batch() -> None:
    runs = [
        replace(run, prompts=0.5 if run.batch == 1 else 0.9, passes=run.passes[:1])
        for run in rounds((0.5, 0.25), 0.2, 0.05, 0.5)
    ]
    form = fit_compiled(tuple(runs))
    assert form.prompts == {1: 0.5, 4: 0.9}
    assert np.allclose(form.prompt_share(np.array([1, 2, 4, 8])), [0.5, 0.5 + 0.4 / 3, 0.9, 0.9])
    assert FORM.prompt_share(3) == 1.0


def device(form: CompiledForm = FORM) -> CompiledDevice:
    return CompiledDevice(MeasuredDevice(table()), "onnxruntime", form)


def test_passes_are_shares_of_the_interpreters_over_one_token() -> None:
    """Of the same layers; what a longer text adds is the interpreter's own."""
    compiled = device()
    assert compiled.forward_seconds(LLAMA, 1, 1, 0).median == pytest.approx(0.5 * 3.2)
    part = compiled.forward_seconds(LLAMA, 1, 8, 0, layers=(0, 8)).median
    assert part == pytest.approx(0.5 * 3.2 * (1.2 + 7 * 0.05))
    both = compiled.forward_seconds(LLAMA, 1, np.array([1, 8]), 0).median
    assert both == pytest.approx([1.6, 2.48])
    late = CompiledDevice(MeasuredDevice(table(0.01)), "onnxruntime", FORM)
    assert late.forward_seconds(LLAMA, 1, 8, 50).median == pytest.approx(2.48 + 0.5)
    tokens, contexts = np.array([1, 8]), np.array([[0], [50], [100]])
    every = late.forward_seconds(LLAMA, 1, tokens, contexts)
    for (row, column), time in np.ndenumerate(every.median):
        one = late.forward_seconds(LLAMA, 1, int(tokens[column]), int(contexts[row, 0]))
        ends = every.low[row, column], time, every.high[row, column]
        assert ends == pytest.approx((one.low, one.median, one.high))


def test_the_table_is_searched_once_for_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the pass over one token, which the table remembers."""
    compiled, searched, search = device(), list[int](), Axis.at

    def counted(self: Axis, points: tuple[np.ndarray, ...], *others: Any) -> Any:
        if self.level == 0:
            searched.append(len(points[0]))
        return search(self, points, *others)

    monkeypatch.setattr(Axis, "at", counted)
    for _ in range(2):
        compiled.forward_seconds(LLAMA, 1, np.array([1, 2, 8]), 10)
    assert searched == [2 * 3, 1, 2 * 3]


def test_everything_else_is_a_share_and_prompts_stay() -> None:
    compiled, base = device(), MeasuredDevice(table())
    assert compiled.op_seconds("accept", 1, 1).median == pytest.approx(0.2)
    assert compiled.op_seconds("commit:tree", 1, 1).median == pytest.approx(3.0)
    assert compiled.op_seconds("lookup", 1, 1).median == pytest.approx(0.7)
    assert compiled.round_seconds(1).median == pytest.approx(0.1)
    assert compiled.prefill_seconds(LLAMA, 1, 100) == base.prefill_seconds(LLAMA, 1, 100)
    assert (compiled.kind, compiled.lane_overlap) == ("measured", 0.0)
    assert compiled.provenance.backend == "onnxruntime"
    assert compiled.basis([LLAMA]).endswith("by onnxruntime told from some that ran")


def test_intervals_are_as_wide_as_both_errors() -> None:
    compiled, base = device(), MeasuredDevice(table())
    whole, own = (one.forward_seconds(LLAMA, 1, 1, 0) for one in (base, compiled))
    for end, its_end in ((whole.low, own.low), (whole.high, own.high)):
        wide = np.hypot(end / whole.median - 1.0, FORM.error)
        assert abs(its_end / own.median - 1.0) == pytest.approx(min(wide, 1.0)), "a difference's"


def test_tables_keep_compiled_rounds(tmp_path: Path) -> None:
    stored, path = table(), tmp_path / "device.json"
    stored.compiled["inductor"] = tuple(rounds((0.8, 0.6), 0.2, 0.05, 0.5))
    stored.save(path)
    loaded = load_device(path)
    assert isinstance(loaded, MeasuredDevice) and loaded.table.compiled == stored.compiled
    compiled = compiled_by(loaded, "inductor")
    assert isinstance(compiled, CompiledDevice)
    assert compiled.form == fit_compiled(stored.compiled["inductor"])
    assert compiled_by(loaded, "onnxruntime") is loaded, "none of its rounds were timed"
    sheet = load_device("h200")
    assert compiled_by(sheet, "inductor") is sheet


PASS = {"model": "m", "dtype": "f", "count": 1, "tokens": 1, "single": 1.0}


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 0.0},
        {"seconds": "fast"},
        {"seconds": float("inf")},
        {"batch": True},
        {"others": None},
        {"others": -1.0},
        {"passes": []},
        {"passes": 3},
        {"passes": [PASS | {"single": float("nan")}]},
        {"passes": [PASS | {"tokens": 0}]},
        {"passes": [PASS | {"model": None}]},
        {"passes": [PASS | {"layers": 2}]},
        {"turns": 3},
    ],
)
def test_damaged_rounds_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    stored, path = table(), tmp_path / "device.json"
    stored.compiled["inductor"] = tuple(rounds((0.8, 0.6), 0.2, 0.05, 0.5))
    stored.save(path)
    document = json.loads(path.read_text())
    document["compiled_rounds"]["inductor"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="does not fit the schema"):
        load_device(path)
