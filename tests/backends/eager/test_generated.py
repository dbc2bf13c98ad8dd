"""Generated plans decode as the definition says: tokens, rounds and draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.oracle.backend import OracleBackend
from specplan.ir.capabilities import refusals
from tests.backends.eager.generated_case import decoded, load_models, save_models
from tests.ir.generated import generated_plan

RUNNABLE = [n for n in range(100) if not refusals(generated_plan(n), CAPABILITIES)][:50]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints, and a datastore."""
    made = tmp_path_factory.mktemp("generated")
    save_models(made)
    return made


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    """The models of generated plans."""
    return load_models(folder)


def test_there_are_enough() -> None:
    assert len(RUNNABLE) == 50


@pytest.mark.parametrize("number", RUNNABLE)
def test_generated_plans_decode_as_is_defined(
    number: int, models: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    plan = generated_plan(number)
    for temperature in (0.0,) if plan.greedy_only else (0.0, 0.8):
        defined = decoded(OracleBackend(), plan, models, temperature)
        assert decoded(EagerBackend(), plan, models, temperature) == defined
