"""`benchmarks/optimize_cold.py`: a public target with three drafters at 32 loads is planned for."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_problem_is_planned_for_from_configs_alone(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    import optimize_cold

    figures = optimize_cold.measure(tmp_path, runs=1)
    assert figures["loads"] + len(figures["left_out"]) == 8 * 4
    assert figures["candidates"]["priced"] > 50 and "by head" in figures["chosen"]
    assert figures["drafters"] == ["head", "large", "small"]
    assert len(figures["runs"]) == 1
    assert not list(tmp_path.rglob("*.safetensors"))
