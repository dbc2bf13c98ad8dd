"""What a drafter's drafts are worth, and which proposers are worth a closer look."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import Drafter, FirstLayers, Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.ir.blocks import Skips
from specplan.planner import DrafterPrices, ProblemFacts, search
from specplan.planner.drafters.prices import TOO_DEAR
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.methods.layer_skip import METHOD, LayerSkipOptions
from specplan.planner.search.comparing import cell_costs
from tests.planner.example_facts import example_facts


def test_prices_are_those_of_the_best_chain(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, workload={
        "batch_sizes": [1], "prompt_tokens": 40, "output_tokens": 32,
    })  # fmt: skip
    prices = DrafterPrices(facts)
    options = LayerSkipOptions(("attn.1", "mlp.1"), 1)
    name = METHOD.drafter(facts, options) or ""
    key = acceptance_key(facts.problem, facts.shapes, name)
    profile = AcceptanceProfile.from_hazards([[0.9]], key=key, trials=1000)
    expected = inf
    for length in range(1, 9):
        plan = METHOD.plan(facts, LayerSkipOptions(options.skip, length))
        estimate = Pricer(
            facts.device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=32
        ).estimate(plan, profile)
        assert isinstance(estimate, Estimate)
        expected = min(expected, estimate.request_seconds.median / 32)
    assert prices.best(profile) == pytest.approx(expected)
    assert prices.plain < expected, "two blocks of 64 save too little to pay"
    whole, part = prices.pass_seconds(), prices.pass_seconds(Skips.of([1], [1]))
    assert part == pytest.approx(whole * 31 / 32, rel=0.02)


def known(facts: ProblemFacts, drafter: Drafter, hazard: float) -> AcceptanceProfile:
    key = acceptance_key(facts.problem, facts.shapes, drafter)
    return AcceptanceProfile.from_hazards([[hazard]] * 4, key=key, trials=1000)


def test_who_costs_too_much_at_every_load_is_not_promising(tmp_path: Path) -> None:
    """A draft model that is mostly right, and layers of the target that are mostly wrong."""
    one = {"batch_sizes": [1], "prompt_tokens": 40, "output_tokens": 32}
    facts = example_facts(tmp_path, workload=one)
    prices = DrafterPrices(facts)
    draft, target = known(facts, Model("draft"), 0.9), known(facts, FirstLayers("target", 2), 0.05)
    assert prices.promising([draft]) == {Model("draft")}
    assert prices.best(draft) * TOO_DEAR < prices.plain < prices.best(target) < inf
    assert prices.promising([draft, target]) == {Model("draft")}


def test_who_is_best_at_some_load_is_promising(tmp_path: Path) -> None:
    """The rule, from the candidates of a whole search."""
    facts = example_facts(tmp_path)
    result = search(facts)
    costs: dict[str | None, np.ndarray] = {}
    for one in result.candidates:
        if one.priced:
            cost = cell_costs(one, facts.objective)
            costs[one.drafter] = np.minimum(costs.get(one.drafter, inf), cost)
    best = np.min(list(costs.values()), axis=0)
    expected = {name for name, cost in costs.items() if name and (cost <= TOO_DEAR * best).any()}
    promising = DrafterPrices(facts).promising(facts.profiles.values())
    assert expected and expected <= promising
    assert all(
        not (costs[name] <= TOO_DEAR * best).any() for name in costs.keys() - promising if name
    )


def test_who_has_no_price_stays(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    stranger = known(facts, Model("target"), 0.5)
    assert DrafterPrices(facts).promising([known(facts, Model("draft"), 0.9), stranger]) == {
        Model("draft"),
        Model("target"),
    }
