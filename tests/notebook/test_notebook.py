"""Problems by keywords, short cards, tables, sweeps, comparisons, and the example notebook."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specplan as sp
from specplan.cost_models.intervals import Interval
from specplan.planner.problem import schema
from specplan.planner.problem.loading import problem_from_dict

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODELS = EXAMPLES / "ci/plans/chat-8b-h100"


@pytest.fixture(scope="module")
def problem() -> sp.Problem:
    return sp.Problem(
        target=MODELS / "target",
        drafts={"eagle": MODELS / "draft"},
        device="8xH200",
        backend="vllm",
        batch=np.array([1, 16]),
        prompt=1024,
        output=512,
        tpot="50ms",
    )


@pytest.fixture(scope="module")
def result(problem: sp.Problem) -> sp.Result:
    return problem.assume(eagle=0.8).optimize()


def test_keywords_say_what_the_keys_of_a_file_say(problem: sp.Problem) -> None:
    keys: dict[str, Any] = {
        "models": {
            "target": {"path": str(MODELS / "target")},
            "drafts": [{"name": "eagle", "path": str(MODELS / "draft")}],
        },
        "device": "8xh200",
        "backend": "vllm",
        "workload": {"batch_sizes": [1, 16], "prompt_tokens": 1024, "output_tokens": 512},
        "limits": {"tpot": 0.05},
    }
    assert sp.Problem(**keys) == problem
    checked = problem_from_dict({"schema_version": 1, **keys})
    assert sp.Problem.of(checked) == problem and isinstance(problem, schema.Problem)
    assert problem.replace(batch=4).workload.batch_sizes == (4,)
    assert problem.replace(prompt=[8, 16]).workload.lengths == (8, 16)
    assert problem.replace(tpot="2s").replace(batch=1).limits.tpot == 2.0


def test_what_is_wrong_is_stated_when_a_problem_is_made() -> None:
    with pytest.raises(sp.UsageError, match="2 errors") as caught:
        sp.Problem("nowhere", device="h100", batch=1, prompt=8, output=8, backend="vllm")
    assert '"h100-pcie" or "h100-sxm"?' in str(caught.value)
    with pytest.raises(sp.UsageError, match="unknown key"):
        sp.Problem("nowhere", batches=1)


def test_reprs_are_short(problem: sp.Problem, result: sp.Result) -> None:
    assert repr(problem).startswith("Problem(target='target', drafts=['eagle'], device='8xh200'")
    for value in (problem, result, problem.optimize(), result.speedup):
        assert len(repr(value)) < 1500 and len(repr(value).splitlines()) <= 12
        assert max(map(len, repr(value).splitlines())) <= 140
    assert repr(Interval(1.858, 1.61, 2.004)) == "1.858 (1.61 to 2.004)"
    assert repr(Interval(np.ones(3), np.ones(3), np.ones(3))) == "Interval of 3 cells"  # type: ignore[arg-type]
    html = result._repr_html_()
    assert "<table>" in html and "tpot_ms" in html and len(html) < 5000


def test_a_result_is_a_table(result: sp.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = result.table()
    assert [row["batch"] for row in rows] == [1, 16]
    for row, estimate in zip(rows, result.estimates, strict=True):
        assert row["tpot_ms"] == pytest.approx(1e3 * estimate.seconds_per_token.median)
        assert row["decode_tokens_per_s_user"] == pytest.approx(1e3 / row["tpot_ms"])
        assert row["decode_gain"] == pytest.approx(row["tpot_ms_plain"] / row["tpot_ms"], rel=0.02)
        assert 1.0 < row["request_gain"] < row["decode_gain"]
        assert row["plan"].startswith(('draft model "eagle" K=', "K by batch size ("))
        assert row["memory_gb_per_device"] == pytest.approx(estimate.memory.total / 8e9, rel=1e-6)


def test_a_table_is_a_data_frame_with_pandas(
    result: sp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pandas:
        DataFrame = staticmethod(lambda rows: ("frame", rows))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert result.table()[0] == "frame" and len(result.table()[1]) == 2


def test_an_undecided_result_shows_what_it_would_take(problem: sp.Problem) -> None:
    undecided = problem.optimize()
    assert (
        "No decision: no acceptance is known for eagle" in repr(undecided)
        and "pays_from" in undecided._repr_html_()
    )
    assert undecided.table()[0]["drafter"] == "eagle"
    for what in (lambda: undecided.plot(), lambda: sp.compare(undecided, undecided)):
        with pytest.raises(sp.SpecplanError, match="no acceptance is known for eagle"):
            what()


def test_one_value_is_swept_as_a_list_of_one(problem: sp.Problem) -> None:
    one = problem.sweep(acceptance=0.7, device="8xh200")
    assert one.rows == problem.sweep(acceptance=[0.7], device=["8xh200"]).rows
    for wrong, words in ((2, "from 0 to 1, got 2"), ("x", "got 'x'"), ([], "no value to sweep")):
        with pytest.raises(sp.UsageError, match=words):
            problem.sweep(acceptance=wrong)
        with pytest.raises(sp.UsageError, match=words):
            problem.sweep(acceptance={"eagle": wrong})


def test_a_sweep_has_rows_for_every_value(problem: sp.Problem, tmp_path: Path) -> None:
    swept = problem.sweep(
        acceptance={"eagle": np.array([0.5, 0.9])}, batch=[1, 64], device=["8xh200", "8xb200"]
    )
    assert len(swept.rows) == 2 * 2 * 2 and swept.keys == ("device",)
    assert "8xb200" in repr(swept) and "<table>" in swept._repr_html_()
    swept.save(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().startswith("device,drafter,batch,")
    pytest.importorskip("matplotlib")
    swept.plot().save(tmp_path / "gain.png")
    assert "<svg" in swept.plot()._repr_svg_() and (tmp_path / "gain.png").stat().st_size > 1000


def test_decisions_are_compared(problem: sp.Problem, result: sp.Result) -> None:
    other = problem.replace(device="8xb200", batch=[16, 32]).assume(eagle=0.8).optimize()
    compared = sp.compare(result, other)
    assert [row["batch"] for row in compared.rows] == [16]
    (row,) = compared.rows
    assert row["decode_gain_b_over_a"] == pytest.approx(row["tpot_ms_a"] / row["tpot_ms_b"])
    assert "tpot_ms_b" in repr(compared) and "<table>" in compared._repr_html_()
    with pytest.raises(sp.NothingToCompareError):
        sp.compare(result, problem.replace(batch=7).assume(eagle=0.8).optimize())


def test_dir_shows_what_is_public() -> None:
    assert dir(sp) == sorted(sp.__all__) and all(hasattr(sp, name) for name in dir(sp))
    assert "construct" not in dir(sp.Problem.model_construct())


def test_the_package_imports_nothing_before_it_is_used() -> None:
    code = "import specplan, sys; print({'pydantic', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_example_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, and the value of each last expression is shown as a notebook shows it."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(EXAMPLES)
    cells = json.loads((EXAMPLES / "plan.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    outputs: list[str] = []
    for cell in cells:
        assert not cell.get("outputs"), "a notebook is committed without outputs"
        if cell["cell_type"] != "code":
            continue
        *statements, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(statements, []), "plan.ipynb", "exec"), names)
        assert isinstance(last, ast.Expr), "every cell ends with what it shows"
        value = eval(compile(ast.Expression(last.value), "plan.ipynb", "eval"), names)
        shown = [
            getattr(value, name)() for name in ("_repr_html_", "_repr_svg_") if hasattr(value, name)
        ]
        outputs.append(shown[0] if shown else repr(value))
    assert len(outputs) == 8 and all(0 < len(output) < 200_000 for output in outputs)
    assert "No decision" in outputs[1] and "Use the draft model" in outputs[2]
