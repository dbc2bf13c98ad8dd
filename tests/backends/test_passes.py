"""A plan decodes the same before and after every pass, and its price stays what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.clock import Clock
from specplan.cost_models.demands import round_demands
from specplan.cost_models.pricing import RoundPrice, price_round
from specplan.ir.plan import Plan
from specplan.passes.pipeline import PASSES, run_passes
from specplan.planner.facts import ProblemFacts
from specplan.runtime.requests import Request
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, load_pair
from tests.planner.example_facts import example_facts


def requests_of(temperature: float) -> list[Request]:
    """Prompts of several lengths over a vocabulary of 61."""
    return [
        Request(
            prompt_tokens=tuple((7 * i + seed) % 61 for i in range(5 + 4 * seed)),
            max_new_tokens=14,
            temperature=temperature,
            seed=seed,
        )
        for seed in range(7)
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_are_the_same_after_every_pass(
    pair_folder: Path, tmp_path: Path, temperature: float
) -> None:
    models, requests = load_pair(pair_folder), requests_of(temperature)
    for name, plan in every_kind(tmp_path, temperature, 2):
        expected = in_batches(plan, models, requests, 3)
        for after, lowered in stages(plan):
            assert in_batches(lowered, models, requests, 3) == expected, (name, after)


def test_drawn_plans_of_temperature_0_need_no_draws(pair_folder: Path, tmp_path: Path) -> None:
    models, requests = load_pair(pair_folder), requests_of(0.0)
    for name, plan in every_kind(tmp_path, 0.8, 1):
        cold = replace(plan, assumptions=replace(plan.assumptions, temperature=0.0))
        expected = in_batches(plan, models, requests, 3)
        assert in_batches(run_passes(cold), models, requests, 3) == expected, name


def test_prices_are_the_same_after_every_pass(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    for name, plan in every_kind(tmp_path, 0.0, 2, layers=32):
        before, *others = [seconds(facts, item) for item in (plan, *(p for _, p in stages(plan)))]
        assert others == [pytest.approx(before)] * len(others), name


def seconds(facts: ProblemFacts, plan: Plan) -> float:
    """Of a round at batch 4 and 40 tokens of text."""
    clock = Clock(facts.device, facts.shapes, 4, 40)
    found = price_round(round_demands(plan, plan.rounds[0]), clock, {})
    assert isinstance(found, RoundPrice)
    return float(found.seconds.median)


def stages(plan: Plan) -> list[tuple[str, Plan]]:
    """The plan after each pass that changed it."""
    found: list[tuple[str, Plan]] = []

    def watch(name: str, after: Plan, changed: bool, _: float) -> None:
        if changed:
            found.append((name, after))

    run_passes(plan, PASSES, watch=watch)
    return found
