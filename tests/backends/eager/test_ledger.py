"""Plans of published systems decode in eager as the definition says, where it takes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specplan.ir.plan import Plan
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from tests.backends.eager.generated_case import VOCABULARY, decode_alike, save_text
from tests.backends.eager.modules import Module, Probed
from tests.backends.many_plans import LEDGER, small
from tests.backends.oracle.roles import HEADS, SLOTS_ENTER, layers_of
from tests.backends.pairs import save_pair, save_shorter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models and a datastore are saved."""
    made = tmp_path_factory.mktemp("ledger")
    for name in ("groups", "crest"):
        save_text(made / name)
    return made


@cache
def checkpoint(folder: Path, layers: int, of: int) -> CausalModel:
    """The first layers of a target of so many."""
    home = folder / str(of)
    if not home.exists():
        save_pair(home, VOCABULARY, scale=0.2, layers=of, sureness=6.0)
    save_shorter(home, f"first{layers}", layers)
    return load_model(home / f"first{layers}", dtype="float64")


def models_of(plan: Plan, folder: Path) -> dict[str, Any]:
    """A model for every role: checkpoints, and modules where a role reads states."""
    most = layers_of(plan, "target") or max(4, *(layers_of(plan, m.name) for m in plan.models))
    target = checkpoint(folder, most, most)
    drafters: dict[str, Any] = {}
    for role in plan.models_run:
        shape = HEADS.get(f"{plan.name}/{role}") or HEADS.get(role)
        if shape is None:
            drafters[role] = checkpoint(folder, max(2, most // 2, layers_of(plan, role)), most)
        else:
            drafters[role] = Module(
                target, layers=shape.layers, stages=9, by_slots=shape.by_slots,
                optional=shape.optional,
            )  # fmt: skip
    return {**drafters, "target": Probed(target, SLOTS_ENTER.get(plan.name, 0))}


def test_most_of_them_run() -> None:
    assert len(LEDGER) >= 50


@pytest.mark.parametrize("path", LEDGER, ids=lambda path: path.stem)
def test_plans_of_systems_decode_as_is_defined(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    plan = small(path)
    models = models_of(plan, folder)
    decode_alike(plan, models)
