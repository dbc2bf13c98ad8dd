"""`benchmarks/tree_search.py`: what it says of itself; its times are no matter here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def tree_search(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    import tree_search

    return tree_search


@pytest.mark.parametrize("store", ["torch", "numpy"])
def test_the_report_names_what_it_divides_by(
    tree_search: ModuleType, store: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And all statements agree on the value, which the script asserts."""
    if store == "numpy":
        monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    else:
        pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["tree_search.py", "--quick", "--json", "--rounds", "1"])
    tree_search.main()
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["name"].split(",")[0] for case in cases] == ["not monotone", "monotone"]
    for case in cases:
        assert case["published_store"] == store and case["peak_bytes"] > 0
        for ratio, side in (("ratio", "published"), ("ratio_to_lists", "lists")):
            assert case[ratio] == pytest.approx(case[f"{side}_seconds"] / case["ours_seconds"])
    assert any(f"published ({store}): " in line for line in tree_search.words(cases))
