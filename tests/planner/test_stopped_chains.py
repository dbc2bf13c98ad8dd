"""Numbers that move the end of a chain from round to round, against the papers' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.ir.formula import evaluate
from specplan.ir.ops import Compute, Load, Measure, Repeat, Store
from specplan.ir.plan import Plan, ValueState
from specplan.ir.values import Value
from specplan.planner.method import Family, discover_methods
from tests.planner.example_facts import example_facts


def plan_of(folder: Path, method: str, proposer: str) -> Plan:
    facts = example_facts(folder, methods=[method])
    found = discover_methods()[method]
    (family,) = found.choices(facts)
    assert isinstance(family, Family)
    (options,) = (one for one in family.settings if found.proposer(one) == proposer)
    return found.plan(facts, options)


def after_round(
    plan: Plan, values: dict[str, float], accepted: int, drafted: int
) -> dict[str, float]:
    """What a round leaves in its value states, given what it found there."""
    known: dict[Value, float] = {}
    left = dict(values)
    for op in plan.rounds[0].ops:
        match op:
            case Load():
                known[op.results[0]] = values[op.state]
            case Measure():
                known[op.results[0]] = {"accepted": accepted, "count": drafted}[op.kind.name]
            case Compute():
                given = {name: known[value] for name, value in op.operands}
                known[op.results[0]] = float(evaluate(op.formula, given))
            case Store():
                left[op.state] = known[op.value]
    return left


@pytest.mark.parametrize(
    ("accepted", "drafted", "bar", "rate"),
    [(2, 4, 0.601, 0.7), (4, 4, 0.599, 0.95), (8, 8, 0.6, 0.95), (0, 1, 0.601, 0.45)],
)
def test_the_bar_moves_as_published(
    accepted: int, drafted: int, bar: float, rate: float, tmp_path: Path
) -> None:
    """Draft & Verify (arXiv 2309.08168), released code: step .01, weights .5 and .9, wanted .9."""
    plan = plan_of(tmp_path, "adaptive_bar", "draft+bar90_8")
    left = after_round(plan, {"bar": 0.6, "rate": 0.9}, accepted, drafted)
    assert left == pytest.approx({"bar": bar, "rate": rate})
    (first,) = (state for state in plan.states if state.name == "bar")
    assert isinstance(first, ValueState) and first.kind.get("init") == 0.6


def test_the_coin_is_the_mean_of_the_posterior(tmp_path: Path) -> None:
    """Beta(1, 1); three of five accepted, the fourth rejected: Beta(4, 2), which goes on at 2/3."""
    plan = plan_of(tmp_path, "thompson", "draft+coin10")
    left = after_round(plan, {"kept": 1.0, "lost": 1.0}, 3, 5)
    assert left == {"kept": 4.0, "lost": 2.0}
    assert after_round(plan, left, 2, 2) == {"kept": 6.0, "lost": 2.0}  # none was rejected
    (loop,) = (op for op in plan.rounds[0].ops if isinstance(op, Repeat))
    (stop,) = (op for op in loop.body.ops if isinstance(op, Compute))
    names = {name: {"m": 0.66, "k": 4.0, "o": 2.0}[name] for name, _ in stop.operands}
    assert evaluate(stop.formula, names) is False
    assert evaluate(stop.formula, names | {"m": 0.67}) is True
