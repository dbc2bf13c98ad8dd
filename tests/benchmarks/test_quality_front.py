"""The table of speed against loss in the docs is that of the stored results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest


def test_the_page_has_the_table_of_the_results(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    front = importlib.import_module("quality_front")
    data = json.loads((repository / "benchmarks/results/quality_front.json").read_text())
    assert front.table(data) in (repository / "docs/quality.md").read_text()
    lossy = [one for one in data["front"] if one["bound"] > 0]
    assert len(lossy) >= 20 or data["front"][0]["keeps"]
    assert all(one["mean"] <= one["bound"] for one in data["front"])
