"""The best plan of each load alone: the rule of the whole search, load by load."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.estimate import Estimate
from specplan.planner.search.comparing import choose, score
from specplan.planner.search.limits import with_price
from specplan.planner.search.search import search
from specplan.planner.search.settings import pricer_of
from tests.planner.example_facts import example_facts, workload


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("refuse_plain", [False, True])
def test_the_best_of_a_load_is_what_is_chosen_for_it_alone(
    tmp_path: Path, objective: Any, refuse_plain: bool
) -> None:
    """The same candidates priced at each load by itself: one rule for limits, gains and ties."""
    batches, limits = [8, 12], {}
    device = "h200@magicdec"  # so dear a verification that some tie goes to the simpler plan
    of = partial(
        example_facts, tmp_path, device=device, methods=["draft_model"], objective=objective
    )
    if refuse_plain:
        plain = search(of(workload=workload(batch_sizes=batches))).plain
        limits = {"tpot": 0.9 * plain.estimates[0].seconds_per_token.median}
    result = search(of(workload=workload(batch_sizes=batches), limits=limits))
    least = 0
    for cell, batch in enumerate(batches):
        facts = of(workload=workload(batch_sizes=[batch]), limits=limits)
        pricer, alone = pricer_of(facts), []
        for candidate in result.candidates:
            if candidate.plan is not None and not candidate.by_cell:
                profile = facts.profiles.get(candidate.drafter or "")
                price = pricer.estimate(candidate.plan, profile)
                assert isinstance(price, Estimate)
                alone.append(with_price(facts, replace(candidate, refusal=None), price))
        chosen = choose(alone, alone[0], objective)
        best = result.best_of_each[cell]
        assert (chosen and chosen.words) == (best and best.words)
        if chosen is not None:
            admissible = [c for c in alone if c.admissible]
            least += chosen is min(admissible, key=lambda c: score(c, objective))
    assert refuse_plain or least < len(batches), "some tie goes to the simpler plan"
