"""Which round runs: guards in order, and hysteresis that cannot swing back and forth."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.formula import evaluate, evaluate_tree
from specplan.ir.plan import Guard, Plan, Round, Schedule
from specplan.ir.schedule import select_round, widened
from specplan.ir.values import Text
from tests.ir.plans_on_disk import plan_of

NAMES = {"batch": 1, "context": 100, "emitted": 0, "phase": 0}


def scheduled(*guards: tuple[str, str], otherwise: str = "z", hysteresis: float = 0.1) -> Plan:
    """A plan of empty rounds with these guards."""
    names = dict.fromkeys([name for _, name in guards] + [otherwise])
    return Plan(
        name="p",
        rounds=tuple(Round(name=name, ops=()) for name in names),
        schedule=Schedule(
            guards=tuple(Guard(formula=Text(text), round=name) for text, name in guards),
            otherwise=otherwise,
            hysteresis=hysteresis,
        ),
    )


def pick(plan: Plan, current: str | None = None, **names: int) -> str:
    """The round chosen for these sizes."""
    return select_round(
        plan,
        batch=names.get("batch", 1),
        context=names.get("context", 100),
        emitted=names.get("emitted", 0),
        phase=names.get("phase", 0),
        current=current,
    )


def test_a_plan_without_schedule_has_one_round() -> None:
    plan = plan_of("autoregressive")
    assert select_round(plan, batch=64, context=9, current="other") == "decode"


def test_the_first_guard_that_holds_wins() -> None:
    plan = scheduled(("batch <= 2", "a"), ("batch <= 8", "b"))
    assert [pick(plan, batch=n) for n in (1, 2, 3, 8, 9)] == ["a", "a", "b", "b", "z"]


def test_batch_context_emitted_and_phase_are_known() -> None:
    plan = scheduled(("phase == 1", "p"), ("emitted > 5 and context < 50", "e"))
    assert pick(plan, phase=1) == "p"
    assert pick(plan, emitted=6, context=49) == "e"
    assert pick(plan, emitted=6, context=50) == "z"
    plan = plan_of("schedule")
    assert pick(plan, batch=4) == "k3" and pick(plan, batch=5) == "k0"
    assert pick(plan, batch=5, context=4097) == "k3"
    plan = plan_of("layers_by_position")
    assert [pick(plan, emitted=n) for n in (0, 31, 32, 127, 128)] == [
        "all", "all", "most", "most", "few",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "holds", "stays", "left"),
    [
        ("batch <= 20", 20, 22, 23),
        ("batch < 20", 19, 21, 22),
        ("batch > 20", 21, 19, 18),
        ("batch >= 20", 20, 18, 17),
        ("20 >= batch", 20, 22, 23),
        ("20 < batch", 21, 19, 18),
        ("10 < batch < 20", 11, 10, 9),
        ("10 < batch < 20", 19, 21, 22),
        ("not batch > 20", 20, 22, 23),
        ("not (batch < 20 or batch > 40)", 20, 18, 17),
        ("batch - 40 <= -20", 20, 22, 23),
        ("0 - batch >= -20", 20, 22, 23),
        ("batch <= 10 or batch <= 20", 20, 22, 23),
        ("batch <= 2*10", 20, 22, 23),
        ("batch <= floor(20.5)", 20, 22, 23),
        ("batch == 20", 20, 20, 21),
        ("batch <= 20 and context > 50", 20, 22, 23),
    ],
)
def test_a_bound_moves_outwards_while_its_round_runs(
    formula: str, holds: int, stays: int, left: int
) -> None:
    plan = scheduled((formula, "a"))
    assert pick(plan, batch=holds) == "a", "entered at the bound itself"
    assert pick(plan, "a", batch=stays) == "a", "kept beyond it"
    assert pick(plan, "a", batch=left) == "z", "left where the fraction is passed"
    if stays != holds:
        assert pick(plan, "z", batch=stays) == "z", "and not entered there"


def test_bounds_of_what_was_emitted_stay() -> None:
    """It only grows; beside other names, and of these, bounds move."""
    plan = scheduled(("emitted < 20 and batch <= 20", "a"))
    assert pick(plan, "a", emitted=19, batch=22) == "a" == pick(plan, "a", emitted=19)
    assert pick(plan, "a", emitted=20) == "z" == pick(plan, "a", emitted=19, batch=23)
    mixed = scheduled(("emitted + batch < 20", "a"))
    assert pick(mixed, "a", emitted=20) == "a" and pick(mixed, "a", emitted=21) == "z"


def test_widened_formulas_hold_wherever_the_formula_does() -> None:
    chance = random.Random(0)
    for _ in range(500):
        formula = _formula(chance)
        wider = widened(formula, chance.choice([0.0, 0.1, 0.5, 0.99]))
        for _ in range(20):
            names = {name: chance.randint(0, 60) for name in NAMES}
            assert evaluate_tree(wider, names) or not evaluate(formula, names), formula


def test_a_fraction_of_zero_changes_nothing() -> None:
    chance = random.Random(1)
    for _ in range(200):
        formula = _formula(chance)
        names = {name: chance.randint(0, 60) for name in NAMES}
        assert bool(evaluate_tree(widened(formula, 0.0), names)) == bool(evaluate(formula, names))


def _formula(chance: random.Random, levels: int = 3) -> str:
    """A guard with comparisons to constants under any and/or/not."""
    shape = chance.random()
    if levels and shape < 0.5:
        parts = [_formula(chance, levels - 1) for _ in range(2)]
        return f"({parts[0]} {chance.choice(['and', 'or'])} {parts[1]})"
    if levels and shape < 0.65:
        return f"(not {_formula(chance, levels - 1)})"
    name, bound = chance.choice(sorted(NAMES)), chance.randint(-5, 60)
    sign = chance.choice(["<", "<=", ">", ">="])
    return f"{name} {sign} {bound}" if chance.random() < 0.7 else f"{bound} {sign} {name}"


@settings(max_examples=80)
@given(
    st.integers(10, 200),
    st.sampled_from([0.05, 0.1, 0.25, 0.5]),
    st.sampled_from(["<=", "<", ">", ">="]),
    st.integers(0, 2**32),
)
def test_a_walk_switches_back_only_after_it_passed_the_bound_by_the_fraction(
    bound: int, fraction: float, sign: str, seed: int
) -> None:
    """Random walks of the context around a bound; between two switches lies the dead band."""
    chance = random.Random(seed)
    plan = scheduled((f"context {sign} {bound}", "a"), hysteresis=fraction)
    context, current = bound, pick(plan, context=bound)
    band = bound * fraction
    switches: list[tuple[str, int]] = []
    for _ in range(300):
        context = max(1, context + chance.randint(-3, 3))
        chosen = pick(plan, current, context=context)
        if chosen != current:
            switches.append((chosen, context))
            current = chosen
    for chosen, at in switches:
        outside = at - bound if sign in ("<=", "<") else bound - at
        assert outside >= band if chosen == "z" else outside <= 0
    for (_, here), (_, there) in pairwise(switches):
        assert abs(here - there) >= band


def test_hovering_at_a_bound_does_not_swing() -> None:
    plan = scheduled(("batch <= 20", "a"))
    current, switches = pick(plan, batch=20), 0
    for step in range(100):
        chosen = pick(plan, current, batch=20 + step % 3)
        switches += chosen != current
        current = chosen
    assert switches == 0
    calm = scheduled(("batch <= 20", "a"), hysteresis=0.0)
    assert [pick(calm, "a", batch=20 + step % 2) for step in range(4)] == ["a", "z", "a", "z"]


def test_neighbouring_guards_each_keep_their_own_bound() -> None:
    plan = scheduled(("batch <= 10", "a"), ("batch <= 20", "b"))
    assert pick(plan, "a", batch=11) == "a" and pick(plan, "a", batch=12) == "b"
    assert pick(plan, "b", batch=11) == "b" and pick(plan, "b", batch=10) == "a"
    assert pick(plan, "b", batch=22) == "b" and pick(plan, "b", batch=23) == "z"


def test_a_long_guard_can_be_widened() -> None:
    formula = " or ".join(f"batch == {index}" for index in range(50)) + " or batch <= 100"
    plan = scheduled((formula, "a"))
    assert pick(plan, "a", batch=110) == "a" and pick(plan, "a", batch=111) == "z"
