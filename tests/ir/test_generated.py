"""Generated plans: all verify, use the whole language, and survive text and JSON."""

from __future__ import annotations

import json

import pytest

from specplan.ir.ops import Forward
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.json_form import plan_from_json, plan_to_json
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from tests.ir.generated import generated_plan, generated_text
from tests.ir.generated.coverage import coverage, functions, readers, required

PLANS = 1000
LEAST = 10
"""Plans that use each op, attribute and entry."""
LEAST_READERS = 200
"""Pairs of an op and an attribute that reads its result."""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [generated_plan(number) for number in range(PLANS)]


def test_each_verifies(plans: list[Plan]) -> None:
    assert not [plan.name for plan in plans if verify_plan(plan)]


def test_the_whole_language_is_used(plans: list[Plan]) -> None:
    used = coverage(plans)
    assert not {cell: used[cell] for cell in sorted(required()) if used[cell] < LEAST}
    words = {"floor", "exp", "log", "abs", "min", "max", "where", "And", "Or", "Not"}
    words |= {f"guard {size}" for size in ("batch", "context", "emitted", "phase")}
    assert not {word for word in words if functions(plans)[word] < LEAST}


def test_results_are_read_in_many_ways(plans: list[Plan]) -> None:
    assert len(readers(plans)) >= LEAST_READERS


def test_a_number_is_one_plan(plans: list[Plan]) -> None:
    generated_plan.cache_clear()
    for number in range(0, 50, 7):
        assert generated_plan(number) == plans[number]
        assert generated_text(number) == print_plan(plans[number])


@pytest.mark.parametrize("number", range(50))
def test_round_trips(number: int) -> None:
    plan = generated_plan(number)
    assert parse_plan(print_plan(plan)) == plan
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_plans_are_small_and_work_for_their_text(plans: list[Plan]) -> None:
    """They differ, most of them draft, and many run several models."""
    assert len({print_plan(plan).partition("\n")[2] for plan in plans}) > 0.97 * PLANS
    sizes = [len(list(walk_plan(plan))) for plan in plans]
    assert max(sizes) < 150 and sum(size > 12 for size in sizes) > PLANS / 2
    models = [{op.model for op in walk_plan(plan) if isinstance(op, Forward)} for plan in plans]
    assert sum(len(each) > 1 for each in models) > PLANS / 3
