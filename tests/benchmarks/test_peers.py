"""Our methods beside those of transformers: outputs are compared, not counts of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.measure.bench.bench import Comparison, Line

PLAIN = [(1, 2), (3, 4), (5, 6)]
OURS = [(1, 9), *PLAIN[1:]]
THEIRS = [*PLAIN[:2], (5, 9)]


@pytest.fixture
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return {name: importlib.import_module(name) for name in ("methods", "method_tables")}


def compared(name: str) -> Comparison:
    """One output of each is not that of plain decoding: another one."""
    outputs = {"autoregressive": PLAIN, "prompt_lookup": OURS, name: THEIRS}
    lines = [
        Line(each, speed, speed, speed, None, 1.0, 1.0, None, None, int(each != "autoregressive"))
        for each, speed in zip(outputs, (1.0, 3.0, 2.0), strict=True)
    ]
    return Comparison(
        lines=tuple(lines),
        chosen="prompt_lookup",
        batch=1,
        prompts=3,
        output_tokens=2,
        repeats=1,
        hardware="",
        versions={},
        outputs=outputs,
    )


def test_outputs_are_compared_where_nothing_is_sampled(scripts: dict[str, ModuleType]) -> None:
    methods = scripts["methods"]
    comparison = compared(methods.PEERS["prompt_lookup"])
    row = {"method": "prompt_lookup", "ratio": 1.5}
    assert list(methods.peers(comparison, greedy=True)) == [row | {"different_outputs": 2}]
    assert list(methods.peers(comparison, greedy=False)) == [row | {"different_outputs": None}]


def test_tables_read_files_of_before(scripts: dict[str, ModuleType]) -> None:
    final = {"chosen": "a", "best": "a", "low": 0.0, "high": 0.0, "turns": 0}
    column = {"task": "code", "temperature": 0.0, "batch": 1, "regret": 0.0, "final": final}
    old = {"method": "prompt_lookup", "ratio": 1.5, "differing": 0}
    new = {"method": "draft_model", "ratio": 1.25, "different_outputs": 2}
    table = scripts["method_tables"].table(column | {"cells": [], "peers": [old, new]})
    assert table.splitlines()[-2:] == [
        "  1.50 x transformers' prompt_lookup",
        "  1.25 x transformers' draft_model, 2 outputs differ",
    ]


def test_cells_of_later_runs_join_columns(scripts: dict[str, ModuleType]) -> None:
    """Each over plain decoding of its own run; columns that were not run again stay as they are."""

    def column(batch: int, plain: float, **seconds: float) -> dict[str, Any]:
        every = {"autoregressive": plain, **seconds}
        cells = [
            {"method": name, "predicted_seconds_per_token": time, "seconds_per_token": time}
            for name, time in every.items()
        ]
        return {"task": "code", "temperature": 0.0, "batch": batch, "cells": cells, "regret": 0.1}

    known = [column(1, 4.0, rest=2.0, jacobi=8.0), column(4, 1.0, rest=1.0)]
    once, other = scripts["method_tables"].joined(known, [column(1, 3.0, jacobi=6.0, thompson=2.0)])
    assert other == known[1]
    predictions = {cell["method"]: cell.get("predicted_ratio") for cell in once["cells"]}
    assert predictions == {"autoregressive": None, "jacobi": 0.5, "rest": None, "thompson": 1.5}
    assert once["cells"][0]["seconds_per_token"] == 4.0 and once["regret"] == 0.1
    assert once["joined"] == ["jacobi", "thompson"]
    (twice,) = scripts["method_tables"].joined([once], [column(1, 5.0, triforce=5.0)])
    assert twice["joined"] == ["jacobi", "thompson", "triforce"] and len(twice["cells"]) == 5
