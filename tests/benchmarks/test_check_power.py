"""`benchmarks/check_power.py`: replays of made-up records, and races of tiny models."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan import api
from specplan.measure.bench.interleave import Turn
from specplan.planner import problem_from_dict
from tests.measure.problems import write_problem


@pytest.fixture
def power(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("check_power")


def answer(power: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    power.main(arguments)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_replays_tell_what_the_test_does(
    power: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine with spells: runs take half as long again for a dozen runs at a time."""
    draws = random.Random(4)
    runs = [
        0.2 * draws.lognormvariate(0.0, 0.03) * (1.5 if (place // 12) % 3 == 0 else 1.0)
        for place in range(600)
    ]
    rows = [[a, 32, b, 32, 0] for a, b in zip(runs[0::2], runs[1::2], strict=True)]
    tape = tmp_path / "tape.json"
    tape.write_text(json.dumps({"rows": rows}))
    power_of_test = answer(power, capsys, "replay", str(tape), "--trials", "40")
    assert power_of_test["recorded_pairs"] == 300
    assert power_of_test["usual_log_ratio"] == pytest.approx(0.03 * 2**0.5, rel=0.3)
    assert power_of_test["0.0%"]["shares"]["slower"] <= 0.05
    assert power_of_test["5.0%"]["shares"]["slower"] >= 0.95
    assert power_of_test["5.0%"]["seconds"]["most"] < 150.0
    assert power_of_test["5.0%"]["ratio"]["median"] == pytest.approx(1.05, abs=0.02)


def test_a_tape_plays_runs_in_their_order(power: Any) -> None:
    rows = [[float(i), 1, i + 0.5, 2, 0] for i in range(1, 51)]
    tape = power.Tape(rows, random.Random(0))
    base, head = tape.program(0.0), tape.program(1.0)
    first, second = base(0), head(0)
    assert second == Turn(2.0 * (first.seconds + 0.5), 2) and first.tokens == 1
    assert tape.clock() == first.seconds + second.seconds


def test_recorded_and_raced_for_real(
    power: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_problem(tmp_path, prompts=4, output_tokens=4)
    data = json.loads(path.read_text()) | {"device": "cpu-generic", "sources": []}
    data |= {"methods": ["autoregressive"]}
    data["models"]["drafts"] = []
    api.optimize(problem_from_dict(data, tmp_path), out=tmp_path / "bundle")
    bundle = ("--bundle", str(tmp_path / "bundle"))
    tape, trials = tmp_path / "tape.json", tmp_path / "live.json"
    recorded = answer(power, capsys, "record", *bundle, "--out", str(tape), "--minutes", "0")
    (row,) = json.loads(tape.read_text())["rows"]
    assert row[1] == row[3] == 4 and 0.0 < row[0] < 60.0
    assert recorded["recorded_pairs"] == 1
    # Twice as slow is to be caught: one and four times are as far from it as a busy machine needs,
    # and seven pairs decide, so that the budget is only what ends a test that hangs.
    race = ("live", *bundle, "--out", str(trials), "--trials", "1", "--slowdown", "3.0")
    race = (*race, "--threshold", "1.0")
    recorded = answer(power, capsys, *race, "--seconds", "60")
    assert recorded["0.0%"]["shares"]["not slower"] == 1.0
    assert recorded["300.0%"]["shares"]["slower"] == 1.0
    assert recorded["300.0%"]["ratio"]["median"] > 2.0
    assert [trial["slowdown"] for trial in json.loads(trials.read_text())] == [0.0, 3.0]
    assert answer(power, capsys, *race) == recorded
