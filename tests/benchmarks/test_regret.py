"""`benchmarks/regret.py`: what the fastest measured plan saves over the chosen one."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def regret(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    import regret

    return regret


def asked(**changes: object) -> Namespace:
    return Namespace(**({"tune": 0.0, "split": "bench", "batches": [1, 2, 4, 8]} | changes))


def test_stored_loads_count_only_where_their_plan_was_chosen_alike(regret: ModuleType) -> None:
    old = {"task": "code", "temperature": 0.0, "batch": 1, "regret": 0.01}
    tuned = old | {"tuned_minutes": 10.0, "split": "profile", "batches": [1]}
    rows = [old, tuned]
    assert regret.chosen_alike(asked(), rows) == [old]
    alone = {"tune": 10.0, "split": "profile", "batches": [1]}
    assert regret.chosen_alike(asked(**alone), rows) == [tuned]
    for key, other in (("tune", 5.0), ("split", "bench"), ("batches", [1, 4])):
        assert regret.chosen_alike(asked(**(alone | {key: other})), rows) == []


def test_a_problem_asks_for_the_batch_sizes_given(regret: ModuleType, tmp_path: Path) -> None:
    problem = regret.write_problem(asked(work=tmp_path, seed=1, batches=[4]), "code", 0.8)
    assert problem.workload.batch_sizes == (4,) and problem.workload.temperature == 0.8
