"""What the benchmarks of training measured is what their page shows, and says what it should."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

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
