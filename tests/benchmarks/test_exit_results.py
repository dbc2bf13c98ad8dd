"""The section on methods that leave layers out, in the docs, is that of the stored results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from specplan.planner import discover_methods


def test_the_page_has_the_section_of_the_results(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method has a row; bounds hold on the report, and what keeps the limit was shown to."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    tables = importlib.import_module("exit_tables")
    data = json.loads((repository / "benchmarks/results/exits.json").read_text())
    written = tables.START + tables.section(data) + tables.END
    assert written in (repository / "docs/quality.md").read_text(), (
        "run: python benchmarks/exits.py --page"
    )
    assert data["calibrated"] >= 300 and data["risk"] == 0.05
    methods = discover_methods()
    assert {row["method"] for row in data["rows"]} == {*tables.METHODS}
    shown = {(one["method"], one["words"]) for one in data["tested"] if one["keeps"]}
    for row in data["rows"]:
        loss = row["loss"]
        assert (loss is None) == methods[row["method"]].lossless
        if loss is not None:
            assert loss["mean"] <= loss["bound"]
            within = loss["bound"] <= data["at_most"]
            assert row["keeps"] == (within and (row["method"], row["words"]) in shown)
        elif "timed" in data:
            assert row["differing"] == 0
