"""Systems beside Spec-Bench: bars that the predictions of their tables hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def scores(repository: Path, shared: Path) -> list[dict[str, Any]]:
    script = repository / "benchmarks" / "published.py"
    file = shared / "data" / "published_dev.json"
    done = subprocess.run(
        [sys.executable, str(script), "--rows", str(file), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["scores"])


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
    scores: list[dict[str, Any]], system: str, metric: str, bar: float, rows: int
) -> None:
    mine = [s for s in scores if (s["system"], s["metric"]) == (system, metric) and s["count"]]
    assert sum(score["count"] for score in mine) == rows
    assert max(score["mape"] for score in mine) < bar
