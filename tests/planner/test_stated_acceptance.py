"""Acceptance that a problem states: numbers, rates, lengths and logs, and how it is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.planner.facts import gather_facts
from specplan.planner.problem.loading import problem_from_dict
from specplan.problems import portable
from tests.cost_models.acceptance.importer_files import PROMETHEUS
from tests.planner.checkpoints import write_checkpoint
from tests.planner.example_facts import example_problem

CHAIN = (-1, 0, 1), (0, 0, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stated")
    for name, seed in (("target", 0), ("draft", 1)):
        write_checkpoint(made / name, seed=seed)
    (made / "metrics.txt").write_text(PROMETHEUS)
    return made


def stated(folder: Path, value: Any) -> AcceptanceProfile:
    problem = problem_from_dict(example_problem(acceptance={"draft": value}), folder)
    again = problem_from_dict(portable(problem, folder), folder)
    assert again.acceptance == problem.acceptance
    return gather_facts(problem).profiles[Model("draft")]


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0.5, 1.875),
        (1, 4.0),
        ([0.5, 0.6, 0.7], 1 + 0.5 + 0.3 + 0.21),
        ({"conditional": [0.5, 0.6, 0.7]}, 1 + 0.5 + 0.3 + 0.21),
        ({"marginal": [0.77, 0.54, 0.366]}, 2.676),
        ({"length": 2.9, "at": 3}, 2.9),
    ],
)
def test_what_is_stated_is_what_is_accepted_and_marked(
    folder: Path, value: Any, tokens: float
) -> None:
    profile = stated(folder, value)
    assert profile.tokens_per_round(*CHAIN).mean == pytest.approx(tokens, abs=0.02)
    assert profile.assumption and profile.source == f"is assumed: {profile.assumption}"


def test_one_rate_is_exact_and_rates_by_position_leave_deeper_ones_open(folder: Path) -> None:
    exact, rates = stated(folder, 0.6), stated(folder, [0.6, 0.6, 0.6])
    deep = tuple(range(-1, 9)), (0,) * 10
    assert exact.tokens_per_round(*deep).high == exact.tokens_per_round(*deep).low
    near, far = rates.tokens_per_round(*CHAIN), rates.tokens_per_round(*deep)
    assert (far.high - far.low) > 1.5 * (near.high - near.low) > 0.0


def test_a_log_is_read_and_an_assumption_stays_one_in_its_file(
    folder: Path, tmp_path: Path
) -> None:
    measured = stated(folder, "metrics.txt")
    assert measured.assumption is None
    assert np.isclose(measured.hazard(1, 0), 0.71)
    stated(folder, 0.7).save(tmp_path / "assumed.json")
    assert stated(folder, str(tmp_path / "assumed.json")).assumption is not None


@pytest.mark.parametrize(
    "value", [-0.1, 1.5, True, [], [0.5, 2.0], {"length": 2.9}, {"length": 5, "at": 3}, {"at": 3},
              {"length": 0.5, "at": 3}, {"marginal": [0.3, 0.5]}, {"marginal": 0.3}, None],
)  # fmt: skip
def test_anything_else_is_one_clear_error(folder: Path, value: Any) -> None:
    with pytest.raises(UsageError, match=r"^acceptance\.draft: must ") as caught:
        stated(folder, value)
    assert "further" not in str(caught.value)
