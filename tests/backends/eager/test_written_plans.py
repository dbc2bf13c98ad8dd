"""Every plan of the language's tests decodes; what promises the target's law does as it alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.ir.capabilities import refusals
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.eager.generated_case import looks_ahead
from tests.backends.eager.modules import Module, Probed
from tests.backends.pairs import plain, save_pair, save_shorter

PLANS = sorted((Path(__file__).parents[2] / "ir" / "plans").glob("*.plan"))
PROMPTS = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5), (8, 2, 8, 2, 8))
EVERY = range(len(PROMPTS))
SMALL = (
    ("128255", "60"), ("103", "59"), ("budget=4096", "budget=24"), ("budget=512", "budget=20"),
    ("pending=512 most=544", "pending=3 most=6"),
)  # fmt: skip
"""What is too large for small models."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A target of 32 layers, drafters of fewer of them, and modules that read its states."""
    folder = tmp_path_factory.mktemp("written")
    save_pair(folder, 61, scale=0.1, layers=32, sureness=6.0)
    sizes = {"draft": 24, "small": 20, "wide": 28, "tiny": 12, "amateur": 8}
    for name, layers in sizes.items():
        save_shorter(folder, name, layers)
    loaded: dict[str, Any] = {
        name: load_model(folder / name, dtype="float64") for name in ("target", *sizes)
    }
    target = loaded["target"]
    return loaded | {
        "head": Module(target, layers=1),
        "heads": Module(target),
        "judge": Module(target),
        "block": Module(target, layers=2, by_slots=True, optional=True),
        "nat": Module(target, layers=2),
    }


def small_plan(path: Path) -> Plan:
    """A plan with tokens and budgets that fit small models."""
    text = path.read_text()
    for large, small in SMALL:
        text = re.sub(rf"\b{large}\b", small, text)
    return parse_plan(text)


def models_of(plan: Plan, models: dict[str, Any]) -> dict[str, Any]:
    """The models of a plan; recurrent heads have no layers."""
    needed = {name: models[name] for name in {"target", *plan.models_run}}
    if looks_ahead(plan):
        needed["target"] = Probed(needed["target"])
    if plan.name == "recurrent_heads":
        needed["head"] = Module(models["target"])
    return needed


def decoded(plan: Plan, models: dict[str, Any], warm: bool, rows: Sequence[int]) -> Any:
    """What some prompts are continued by in one batch; where it is warm, odd rows are sampled."""
    requests = [
        Request(
            prompt_tokens=PROMPTS[row],
            max_new_tokens=8,
            temperature=0.9 if warm and row % 2 else 0.0,
            seed=row,
        )
        for row in rows
    ]
    executable = EagerBackend().compile(plan, models)
    return [item.tokens for item in generate(executable, requests).completions]


@pytest.fixture(scope="module")
def expected(models: dict[str, Any]) -> Any:
    """What the target says alone."""
    return decoded(plain(), {"target": models["target"]}, False, EVERY)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_written_plan_decodes(path: Path, models: dict[str, Any], expected: Any) -> None:
    """Greedily as the target alone does, and sampled the same by itself and in a batch."""
    plan = small_plan(path)
    assert not refusals(plan, CAPABILITIES)
    given, warm = models_of(plan, models), not plan.greedy_only
    together = decoded(plan, given, warm, EVERY)
    assert all(len(tokens) == 8 for tokens in together)
    if plan.assumptions.lossless:
        greedy = slice(None, None, 2 if warm else 1)
        assert together[greedy] == expected[greedy]
    if plan.assumptions.reproducible and warm:
        assert decoded(plan, given, warm, [1]) == together[1:2]
