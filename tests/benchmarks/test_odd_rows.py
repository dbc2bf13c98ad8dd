"""Rows that are missing, mangled or unknown: every one is scored or listed with a reason."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

ODD: tuple[Any, ...] = (
    None, "x", [1, 2], {}, -1, 0, 1e9, 0.5, True, float("nan"), "8x8", "0x0", "axb",
)  # fmt: skip


def mangled(rows: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    """Some of the rows, some of them with odd values."""
    share = draw.choice((0.02, 0.3, 0.9))
    result = []
    for row in rows:
        if draw.random() > share:
            continue
        copy = json.loads(json.dumps(row))
        if draw.random() < 0.15:
            copy[draw.choice(list(copy))] = draw.choice(ODD)
        if draw.random() < 0.2 and isinstance(copy.get("setting"), dict) and copy["setting"]:
            copy["setting"][draw.choice(list(copy["setting"]))] = draw.choice(ODD)
        result.append(copy)
    return result


@pytest.mark.shared
@pytest.mark.parametrize("seed", range(8))
def test_any_subset_with_odd_values_is_answered(
    repository: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    published = importlib.import_module("published")
    row = importlib.import_module("published_rows.row")
    score = importlib.import_module("published_rows.score")
    every = json.loads((shared / "data" / "published_dev.json").read_text())
    rows = [row.Row.parse(entry) for entry in mangled(every, random.Random(seed))]
    predicted, rest = published.predict(rows)
    own = {id(item.row) for item in predicted if not item.row.derived}
    assert len(own) + len(rest) == len(rows)
    json.dumps([vars(each) for each in score.scores(predicted)], allow_nan=False)
