"""Rounds in which heads draft, compiled whole: one call a step, and the interpreter's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.inductor.backend import InductorBackend
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.kinds import all_facts
from tests.backends.pairs import load_pair, save_pair
from tests.backends.test_heads import BLOCK, CHAIN, plan_of
from tests.matrix import LONG

VOCABULARY = 61
PROMPTS = ((3, 1, 4, 1, 5, 3, 1), (2, 7))
METHODS = (
    "eagle3",
    "mtp",
    "parallel_heads",
    "block_drafter",
    "stepwise_heads",
    "exit_adapter",
    "trained_slots",
)
USUAL = ("eagle3",)
CASES = [name if name in USUAL else pytest.param(name, marks=pytest.mark.long) for name in METHODS]


class Case(NamedTuple):
    """A target and random heads, and facts in which all of them draft."""

    models: dict[str, Any]
    facts: ProblemFacts


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("heads")
    save_pair(folder / "pair", VOCABULARY)
    models = with_heads(load_pair(folder / "pair"))
    return Case(models, all_facts(folder, 0.8, VOCABULARY))


def check(backend: Any, name: str, case: Case, folder: Path) -> None:
    """Two drafted tokens a round."""
    method = discover_methods()[name]
    family = method.choices(case.facts)[0]
    assert isinstance(family, Family)
    plan = method.plan(case.facts, [*family.settings][1])
    models = {role: case.models[role] for role in ("target", *(m.name for m in plan.models[1:]))}
    check_plan(backend, plan, models, folder)


def check_plan(backend: Any, plan: Plan, models: dict[str, Any], folder: Path) -> None:
    """Judged by draws; of one request, or of two together."""
    requests = [
        Request(prompt_tokens=one, max_new_tokens=10, temperature=0.8, seed=row)
        for row, one in enumerate(PROMPTS if LONG else PROMPTS[:1])
    ]

    def decoded(executable: Executable) -> list[Any]:
        return [(one.tokens, one.rounds) for one in generate(executable, requests).completions]

    expected = decoded(EagerBackend().compile(plan, models))
    assert decoded(backend.compile(plan, models, folder)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_runs_rounds_of_heads(name: str, case: Case, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    check(OnnxRuntimeBackend(), name, case, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("backend", [OnnxRuntimeBackend(), InductorBackend()])
@pytest.mark.parametrize("name", ["clover", "clover2", "fspad", "amphista", "chimera", "tandem"])
def test_heads_of_other_bodies_are_compiled(
    name: str, backend: Any, case: Case, tmp_path: Path
) -> None:
    """Later passes of Clover go on behind its layers."""
    if backend.available() is not None:
        pytest.skip(str(backend.available()))
    models = {"target": case.models["target"], "head": case.models[name]}
    behind = models["head"].num_layers if models["head"].description.body.on_text else None
    drafted = BLOCK if name == "amphista" else CHAIN
    read = "[1, 2]" if name == "tandem" else "last"
    plan = plan_of(drafted, 0.8, behind=behind, read=read)
    check_plan(backend, plan, models, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_inductor_runs_rounds_of_heads(name: str, case: Case, tmp_path: Path) -> None:
    if InductorBackend().available() is not None:
        pytest.skip(str(InductorBackend().available()))
    check(InductorBackend(), name, case, tmp_path)
