"""Rounds in which heads draft, captured in CUDA graphs, decode as the interpreter on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.inductor.backend import InductorBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import flat_program
from specplan.ir.plan import Plan
from specplan.planner.method import Family, discover_methods
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.kinds import all_facts
from tests.backends.pairs import load_pair, save_pair
from tests.backends.test_compiled_heads import METHODS, VOCABULARY
from tests.backends.test_heads import BLOCK, CHAIN, DYNAMIC, SHAPES, plan_of

REQUESTS = [
    Request(prompt_tokens=one, max_new_tokens=10 + row, temperature=0.8, seed=row)
    for row, one in enumerate(((3, 1, 4, 1, 5, 3, 1), (2, 7), (60,) * 9))
]
PLANS = {
    **{f"eagle3 {shape}": ("head", plan_of(drafted)) for shape, drafted in SHAPES.items()},
    "block": ("flash", plan_of(BLOCK, block=True)),
    "clover2": ("clover2", plan_of(CHAIN, behind=2, read="last")),
    "fspad": ("fspad", plan_of(DYNAMIC, read="last")),
    "amphista": ("amphista", plan_of(BLOCK, read="last")),
}


def of_methods(folder: Path) -> dict[str, Plan]:
    """The plans of methods with heads, of two drafted tokens each."""
    facts, plans = all_facts(folder, 0.8, VOCABULARY), {}
    for name in METHODS:
        family = discover_methods()[name].choices(facts)[0]
        assert isinstance(family, Family)
        plans[name] = discover_methods()[name].plan(facts, [*family.settings][1])
    return plans


def decoded(executable: Any) -> list[tuple[tuple[int, ...], int]]:
    return [(one.tokens, one.rounds) for one in generate(executable, REQUESTS).completions]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(InductorBackend().available() is not None, reason="there is no C++ compiler")
def test_compiled_rounds_of_a_head_decode_as_the_interpreter(tmp_path: Path) -> None:
    save_pair(tmp_path, VOCABULARY, head_dim=64)
    plan = plan_of(CHAIN)
    here = with_heads(load_pair(tmp_path, "float32"))
    there = with_heads(load_pair(tmp_path, "float32", "cuda"))
    given, placed = (
        {name: models[name] for name in ("target", "head")} for models in (here, there)
    )
    expected = decoded(EagerBackend().compile(plan, given))
    compiled = InductorBackend().compile(plan, placed, tmp_path / "out")
    for _ in range(2):
        assert decoded(compiled) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [False, True])
def test_captured_rounds_of_heads_decode_as_the_interpreter(kernels: bool, tmp_path: Path) -> None:
    """With kernels in float32, as they know no float64: no tie falls otherwise here."""
    dtype, size = ("float32", 64) if kernels else ("float64", 8)
    save_pair(tmp_path, VOCABULARY, head_dim=size)
    here = with_heads(load_pair(tmp_path, dtype))
    there = with_heads(load_pair(tmp_path, dtype, "cuda"))
    plans = {name: (plan, {}) for name, plan in of_methods(tmp_path / "facts").items()}
    plans |= {name: (plan, {"head": head}) for name, (head, plan) in PLANS.items()}
    differing = []
    for name, (plan, renamed) in plans.items():
        roles = [model.name for model in plan.models]
        given, placed = (
            {role: models[renamed.get(role, role)] for role in roles} for models in (here, there)
        )
        captured = StaticExecutable(
            plan, placed, flat_program, fused_on={"cuda"}, captured_on={"cuda"}
        )
        expected = decoded(EagerBackend().compile(plan, given))
        if not decoded(captured) == decoded(captured) == expected:
            differing.append(name)
    assert not differing
