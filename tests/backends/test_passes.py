"""What single passes do to tokens and prices.

`test_every_plan.py` decodes a plan of every kind after each pass.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.rounds.demands import round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, price_round, round_cost
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.passes.pipeline import run_passes
from specplan.passes.share_prefix import share_prefix
from specplan.planner.facts import ProblemFacts
from specplan.runtime.requests import Request
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, load_pair, plans_after_passes
from tests.planner.example_facts import SEVEN_BILLION, example_facts


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


WHOLE = "forward target %c cache=@kv pending=1 layers=[0:3]"
CHAIN = f"""
  %t0 = root
  %c = repeat 3 (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward target %f cache=@kv pending=1 layers=[0:1]
    %u = uniform 1 stream=draft
    %n = grow %t at=%f logits=%q how=draw by=%u
    yield %n
  }}
  %l = {WHOLE}
  %v = uniform 4 stream=accept
  %a = accept %c target=%l rule=token by=%v"""
TREE = f"""
  %t0 = root
  %q0 = forward target %t0 cache=@kv pending=1 layers=[0:2]
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest nodes=[0, 2]
  %q1 = forward target %f1 cache=@kv layers=[0:2]
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 1]
  %l = {WHOLE}
  %v = uniform 7 stream=accept
  %a = accept %c target=%l rule=recursive by=%v"""
"""Rounds that say nothing of what drafting and verification share."""


def unshared(body: str) -> Plan:
    return parse_plan(
        f"plan unshared\nmodel target\nstate @kv = cache target\nround decode {{{body}\n"
        "  %e = emit %a\n  commit @kv %e\n}\n"
    )


@pytest.mark.parametrize("body", [CHAIN, TREE], ids=["chain", "tree"])
def test_sharing_lower_layers_keeps_tokens(pair_folder: Path, body: str) -> None:
    models = load_pair(pair_folder)
    plan = unshared(body)
    assert plans_after_passes(plan)[0][0] == "share_prefix"
    lowered = dict(plans_after_passes(plan))
    for temperature, after in ((0.0, "share_prefix"), (0.8, [*lowered][-1])):
        requests = requests_of(temperature)
        expected = in_batches(plan, models, requests, 3)
        assert in_batches(lowered[after], models, requests, 3) == expected, after


def test_sharing_spares_the_lower_layers_of_what_they_have_run(tmp_path: Path) -> None:
    """No weight is read less: the end of the draft needs them all; three tokens compute less."""
    facts = example_facts(tmp_path, target=SEVEN_BILLION | {"num_hidden_layers": 3})
    plan, pricer = unshared(CHAIN), RoundPricer(facts.device, facts.shapes, 1, 40)
    before, after = (
        round_cost(round_demands(item, item.rounds[0]), pricer, {})
        for item in (plan, share_prefix(plan))
    )
    assert after.weight_bytes == pytest.approx(before.weight_bytes)
    spared = forward_cost(facts.target, 1, 3, 40, 0, (0, 1))
    assert before.flops - after.flops == pytest.approx(spared.flops, rel=0.02)


def test_drawn_plans_of_temperature_0_need_no_draws(pair_folder: Path, tmp_path: Path) -> None:
    models, requests = load_pair(pair_folder), requests_of(0.0)[::2]
    for name, plan in every_kind(tmp_path, 0.8, 1):
        cold = replace(plan, assumptions=replace(plan.assumptions, temperature=0.0))
        expected = in_batches(plan, models, requests, 4)
        assert in_batches(run_passes(cold), models, requests, 4) == expected, name


def test_prices_are_the_same_after_every_pass(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    for name, plan in every_kind(tmp_path, 0.0, 2, layers=32):
        before, *others = [
            seconds(facts, item) for item in (plan, *dict(plans_after_passes(plan)).values())
        ]
        assert others == [pytest.approx(before)] * len(others), name


def seconds(facts: ProblemFacts, plan: Plan) -> float:
    """Of a round at batch 4 and 40 tokens of text."""
    pricer = RoundPricer(facts.device, facts.shapes, 4, 40)
    price = price_round(round_demands(plan, plan.rounds[0]), pricer, {})
    assert isinstance(price, RoundPrice)
    return float(price.seconds.median)
