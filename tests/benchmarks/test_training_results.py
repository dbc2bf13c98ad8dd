"""What the benchmarks of training measured is what their page shows, and says what it should."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from specplan.planner.training.curves import Evaluation
from tests.planner.training.test_stopping import chain_speed

Results = dict[str, Any]


def results(name: str, repository: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Results]:
    """A benchmark and its results, which are those on the page."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    benchmark = importlib.import_module(name)
    data = json.loads((repository / f"benchmarks/results/{name}.json").read_text())
    written = benchmark.START + benchmark.section(data) + benchmark.END
    assert written in (repository / "docs/train.md").read_text(), (
        f"run: python benchmarks/{name}.py --page"
    )
    assert {"date", "hardware", "versions"} <= data.keys()
    return benchmark, data


def test_the_vocabulary_by_price_is_the_fastest_as_accepted(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All, a half and a quarter of the reference target's tokens; 32,000 of 128,256, planned."""
    benchmark, data = results("vocabulary", repository, monkeypatch)
    rows = {row["tokens"]: row for row in data["rows"]}
    assert {3072, 1536, 768} <= rows.keys() and data["texts"] == benchmark.TEXTS
    best = max(rows.values(), key=lambda row: float(row["planned_from_measured"]))
    assert (
        data["chosen"] == best["tokens"] == max(rows.values(), key=lambda r: r["planned"])["tokens"]
    )
    for name in ("coverage", "covers_unseen"):
        shares = [rows[size][name] for size in sorted(rows)]
        assert shares == sorted(shares) and shares[-1] == 1.0
    first = [rows[size]["rates"][0] for size in sorted(rows)]
    assert first == sorted(first), "fewer tokens, fewer of them accepted"
    large = {row["tokens"]: row["gain"] for row in data["large"]}
    assert max(large.values()) <= 1.01 * large[benchmark.PUBLISHED]
    assert large[benchmark.PUBLISHED] > large[128256]


def test_the_rule_ends_trainings_of_budgets_that_were_set(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark, data = results("stop_rule", repository, monkeypatch)
    assert (data["pieces"], data["texts"]) == (benchmark.PIECES, benchmark.TEXTS)
    assert data["rows"]
    for row in data["rows"]:
        assert row["budget"] == benchmark.BUDGETS[row["family"]]
        ends = [verdict["steps"] for verdict in row["verdicts"] if verdict["stop"]]
        assert ends == [] if row["ended"] is None else ends == [row["ended"]]
        assert row["saved"] == pytest.approx(1.0 - row["steps"] / row["budget"])
        assert row["loss"] == pytest.approx(1.0 - row["speed"] / row["whole_speed"])
        assert row["low"] <= row["loss"] <= row["high"]
        if row["ended"] is None:
            assert row["saved"] == row["loss"] == 0.0


def test_what_an_ended_training_loses(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every text the whole head accepts 80 of 100 first tokens, the other one 70."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    benchmark = importlib.import_module("stop_rule")
    early, late = ([Evaluation(1, (100,), ((n, 0),))] * 5 for n in (70, 80))
    lost = benchmark.compared(early, late, chain_speed(0.0, 1))
    assert lost["loss"] == pytest.approx(1.0 - 1.7 / 1.8)
    assert lost["low"] == pytest.approx(lost["loss"]) == lost["high"], "all texts are alike"
    assert benchmark.added(early).reached == (500,)
