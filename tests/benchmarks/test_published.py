"""`benchmarks/published.py`: tolerant of any rows, honest scores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scripts import run_script
from tests.benchmarks.test_spec_bench import step_costs


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_script(repository / "benchmarks" / "published.py", *arguments)


def score_rows(repository: Path, folder: Path, rows: Any) -> dict[str, Any]:
    file = folder / "rows.json"
    file.write_text(json.dumps(rows))
    done = run(repository, "--rows", str(file), "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def theory(alpha: float, gamma: int, value: Any) -> dict[str, Any]:
    return {
        "system": "Leviathan SD",
        "metric": "speedup",
        "hardware": "analytic (c=0, c_hat=0)",
        "setting": {"alpha": alpha, "gamma": gamma},
        "value": value,
    }


def test_scores_are_errors_of_the_rows_as_fractions(repository: Path, tmp_path: Path) -> None:
    # E(.5, 1) = 1.5 and E(0, 3) = 1: errors of +0.5 and -0.2
    document = score_rows(repository, tmp_path, [theory(0.5, 1, 1.0), theory(0.0, 3, 1.25)])
    (score,) = document["scores"]
    assert (score["system"], score["metric"], score["count"]) == ("Leviathan SD", "speedup", 2)
    assert score["mape"] == pytest.approx(0.35)
    assert score["worst"] == pytest.approx(0.5)
    assert score["bias"] == pytest.approx(0.15)
    assert score["sign_agreement"] == 0.0  # only 1.25 is clear of 1, and we say 1


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{}],
        [{"system": "nobody knows it", "metric": "speedup", "value": 2.0}],
        [{"system": "Leviathan SD", "metric": "speedup", "value": [1, 2], "setting": None}],
        [theory(0.5, 1, None), theory(0.5, 1, "many")],
        [{"system": "Leviathan SD", "model_pair": ["a"], "setting": [1], "value": {}}],
    ],
)
def test_rows_of_any_kind_are_answered_with_scores(
    repository: Path, tmp_path: Path, rows: list[Any]
) -> None:
    document = score_rows(repository, tmp_path, rows)
    assert document["scores"] == []
    assert sum(entry["count"] for entry in document["unscored"]) == len(rows)


def test_a_file_that_holds_no_rows_is_refused(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text("{")
    done = run(repository, "--rows", str(file), "--json")
    assert done.returncode == 2
    assert "cannot read rows" in done.stderr


@pytest.fixture(scope="module")
def page(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the page that lists the scores."""
    page = tmp_path_factory.mktemp("pages") / "accuracy.md"
    page.write_text((repository / "docs" / "accuracy.md").read_text())
    return page


@pytest.fixture(scope="module")
def shipped(repository: Path, shared: Path, page: Path) -> dict[str, Any]:
    """What the script says of all shipped rows; it rewrites the page meanwhile."""
    file = shared / "data" / "published_dev.json"
    rewriting = ("--json", "--details", "--markdown", str(page))
    done = run(repository, "--rows", str(file), *rewriting)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.shared
def test_every_score_has_the_fields_that_readers_rely_on(shipped: dict[str, Any]) -> None:
    keys = {"system", "metric", "hardware", "count", "mape", "worst", "bias"}
    assert shipped["scores"]
    assert all(keys <= set(score) for score in shipped["scores"])


@pytest.mark.shared
def test_the_closed_form_gives_the_tables_that_it_made(shipped: dict[str, Any]) -> None:
    worst = {
        score["metric"]: score["worst"]
        for score in shipped["scores"]
        if score["system"] == "Leviathan SD"
    }
    assert worst["ops_factor"] < 0.005  # printed with two decimals
    assert worst["speedup_predicted_by_paper"] < 0.05  # alpha and c are rounded there


def mape(document: dict[str, Any], system: str, metric: str, hardware: str = "") -> float:
    """Of the only score with these names; `hardware` is how it begins."""
    (score,) = (
        score
        for score in document["scores"]
        if (score["system"], score["metric"]) == (system, metric)
        and score["hardware"].startswith(hardware)
    )
    return float(score["mape"])


@pytest.mark.shared
def test_measured_speedups_of_t5_hold_where_the_papers_formula_misses(
    shipped: dict[str, Any],
) -> None:
    assert mape(shipped, "Leviathan SD", "speedup_measured") < 0.10  # the formula: 0.177


@pytest.mark.shared
def test_no_calibration_row_is_scored(shipped: dict[str, Any]) -> None:
    scored = sum(score["count"] for score in shipped["scores"] if not score["group"])
    named = sum(score["calibration_count"] for score in shipped["scores"] if not score["group"])
    every = shipped["predictions"]
    assert named == sum(item["calibration"] for item in every) > 0
    assert scored == len(every) - named


@pytest.mark.shared
def test_constants_of_missing_calibration_rows_are_those_that_they_would_give(
    repository: Path, shared: Path, tmp_path: Path, shipped: dict[str, Any]
) -> None:
    rows = json.loads((shared / "data" / "published_dev.json").read_text())
    rest = [
        row
        for row in rows
        if row["system"] == "Leviathan SD" and (row["model_pair"] or {}).get("draft") != "T5-base"
    ]
    document = score_rows(repository, tmp_path, rest)
    with_rows = mape(shipped, "Leviathan SD", "speedup_measured")
    assert mape(document, "Leviathan SD", "speedup_measured") == pytest.approx(with_rows, abs=0.02)


@pytest.mark.shared
@pytest.mark.usefixtures("shipped")
def test_the_accuracy_page_is_rewritten_and_lists_what_is_scored(
    repository: Path, page: Path
) -> None:
    before, after = (repository / "docs" / "accuracy.md").read_text(), page.read_text()
    listed, made = first_cells(before), first_cells(after)
    assert "Leviathan SD" in made and "T5 speedups, Leviathan et al." in made
    assert listed <= made


def first_cells(text: str) -> set[str]:
    """First cells of the tables that the command writes."""
    tables = text.partition("<!-- made by")[2].partition("<!-- end -->")[0]
    lines = [line for line in tables.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| ") for line in lines}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("system", "metric", "bar", "rows"),
    [
        ("Sequoia", "step_cost_ratio", 0.10, 36),
        ("Sequoia", "tokens_per_step", 0.08, 4),
        ("Sequoia", "time_per_token", 0.12, 24),
        ("SpecInfer (Sequoia reimpl.)", "step_cost_ratio", 0.10, 36),
        ("SpecInfer (k independent sequences)", "speedup", 0.10, 56),
        ("EAGLE static tree (25 nodes)", "step_cost_ratio", 0.10, 11),
        ("binary tree", "step_cost_ratio", 0.10, 12),
        ("block verification", "speedup", 0.05, 9),
        ("token verification", "tokens_per_step", 0.02, 2),
        ("Lookahead", "speedup", 0.12, 5),
        ("Prompt lookup", "speedup", 0.10, 1),
    ],
)
def test_tables_hold_their_bars(
    shipped: dict[str, Any], system: str, metric: str, bar: float, rows: int
) -> None:
    mine = [
        score
        for score in shipped["scores"]
        if (score["system"], score["metric"]) == (system, metric) and score["count"]
    ]
    assert sum(score["count"] for score in mine) == rows
    assert max(score["mape"] for score in mine) < bar


@pytest.mark.shared
def test_shipped_ratios_are_within_the_bars(shipped: dict[str, Any]) -> None:
    scores = step_costs(shipped)
    methods = [score for score in scores if not score["group"] and score["count"]]
    assert len(methods) == 19  # ten methods on two machines, one row calibrates
    assert max(score["worst"] for score in methods) < 0.15
    groups = [score for score in scores if score["group"]]
    assert {score["hardware"] for score in groups} == {"A100-80GB", "RTX 3090 24GB"}
    assert min(score["kendall_tau"] for score in groups) >= 0.8
    assert max(score["mape"] for score in groups) < 0.07
