"""Killed while it compiles or times rounds, a measurement goes on from what was done."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from specplan import api  # noqa: E402
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend  # noqa: E402
from specplan.measure.device.compiled import TURN_LOG, TURNS  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402
from tests.started import started_specplan  # noqa: E402

torch.set_num_threads(1)
PROBES = {"autoregressive", "lookup 2", "lookup 5", "lookup 10"}


def kill_when(problem: Path, pattern: str) -> list[Path]:
    """Files below the profiles of this pattern: the measurement is killed when there is one."""
    process = started_specplan("profile", "device", str(problem), "--passes", "1")
    folder = problem.parent / ".specplan" / "device"
    while process.poll() is None and not [*folder.glob(pattern)]:
        time.sleep(0.005)
    process.kill()
    assert process.poll() == -signal.SIGKILL, process.errors
    return sorted(folder.glob(pattern))


@pytest.mark.long
def test_killed_while_compiling_and_while_timing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled is not compiled again, and no whole turn is repeated."""
    path = write_problem(tmp_path, prompts=2, prompt_tokens=8, output_tokens=8)
    alone: dict[str, Any] = {"models": {"target": {"path": "target", "dtype": "float32"}}}
    alone |= {"methods": ["prompt_lookup"], "sources": ["prompt_lookup"]}
    problem = json.loads(path.read_text()) | alone
    path.write_text(json.dumps(problem))
    api.profile_device(path, passes=1)
    path.write_text(json.dumps(problem | {"backend": "onnxruntime"}))
    compiled = kill_when(path, "*/*/*/made_for.json")
    first = {made: made.stat().st_mtime_ns for made in compiled}
    assert 0 < len(first) < len(PROBES)
    (log,) = kill_when(path, f"*/{TURN_LOG}")
    turns = json.loads(log.read_text())["turns"]
    assert 0 < len(turns) < TURNS and {len(turn) for turn in turns} == {len(PROBES)}
    made = {made: made.stat().st_mtime_ns for made in log.parent.glob("*/*/made_for.json")}
    assert len(made) == len(PROBES) and first.items() <= made.items()

    def never(*_: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(OnnxRuntimeBackend, "write", never)
    timed = list[int]()
    measured = api.profile_device(
        path,
        passes=1,
        progress=lambda what, done, _: timed.append(done) if "compiled" in what else None,
    )
    runs = measured.table.compiled["onnxruntime"]
    assert {run.probe for run in runs} == PROBES
    assert timed == [*range(4), *range(4 + len(turns), 4 + TURNS), 4 + TURNS]
    assert not log.parent.exists(), "all of it is in the table"
