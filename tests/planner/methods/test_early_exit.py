"""Drafting with the target's own first layers: plans, choices, prices, and whose acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import (
    TEXT,
    Beam,
    Fallback,
    FirstLayers,
    Interleaved,
    Model,
)
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.rounds.demands import round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import round_cost
from specplan.ir.errors import UsageError
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.early_exit import METHOD, EarlyExitOptions
from tests.planner.example_facts import SEVEN_BILLION, example_facts

SAMPLED = """\
%t0 = root
%c = repeat 6 (%t = %t0) {
  %f = pick %t of=newest
  %q = forward target %f cache=@kv pending=1 layers=[0:8] keep=@after_8
  %u = uniform 1 stream=draft
  %n = grow %t at=%f logits=%q how=draw by=%u
  yield %n
}
%last = pick %c of=newest
forward target %last cache=@kv layers=[0:8] keep=@after_8 gives=[]
%l = forward target %c cache=@kv pending=1 layers=[8:32] features=@after_8
%v = uniform 7 stream=accept
%a = accept %c target=%l rule=token by=%v
%e = emit %a
commit @kv %e
commit @after_8 %e"""


def price(facts: ProblemFacts, options: EarlyExitOptions) -> Estimate:
    estimate = Pricer(
        facts.device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=32
    ).estimate(METHOD.plan(facts, options), facts.profiles[METHOD.drafter(facts, options) or ""])
    assert isinstance(estimate, Estimate)
    return estimate


def test_the_plan(tmp_path: Path) -> None:
    plan = METHOD.plan(example_facts(tmp_path, temperature=0.8), EarlyExitOptions(8, 6))
    inside = print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0].rstrip()
    assert "\n".join(line.removeprefix("  ") for line in inside.split("\n")) == SAMPLED
    assert plan.models_run == ("target",)


@pytest.mark.parametrize(
    ("layers", "exits"), [(1, ()), (2, (1,)), (3, (1,)), (20, (1, 2, 5)), (80, (5, 10, 20))]
)
def test_exits_are_parts_of_the_stack(layers: int, exits: tuple[int, ...], tmp_path: Path) -> None:
    facts = example_facts(tmp_path, target=SEVEN_BILLION | {"num_hidden_layers": layers})
    choices = METHOD.choices(facts)
    if not exits:
        assert [type(choice) for choice in choices] == [Refusal]
        return
    assert all(isinstance(choice, Family) for choice in choices)
    assert METHOD.drafters(facts) == tuple(FirstLayers("target", e) for e in exits)


def test_a_round_reads_the_lower_layers_once_per_token_and_the_upper_ones_once(
    tmp_path: Path,
) -> None:
    """LayerSkip: (g + 1) E + (L - E) layers of weights, and the head g + 1 times."""
    facts = example_facts(tmp_path)
    shape, exit_layer, length = facts.target, 8, 6
    plan = METHOD.plan(facts, EarlyExitOptions(exit_layer, length))
    demands = round_demands(plan, plan.rounds[0])
    cost = round_cost(demands, RoundPricer(facts.device, facts.shapes, 1, 40), {})
    whole = forward_cost(shape, 1, 1, 0, 0).weight_bytes
    head = forward_cost(shape, 1, 1, 0, 1).weight_bytes - whole
    layers = (length + 1) * exit_layer + (32 - exit_layer)
    assert cost.weight_bytes == pytest.approx(whole * layers / 32 + (length + 1) * head)


def test_it_needs_no_memory_for_a_draft_model(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    parts = {part.name: part.bytes for part in price(facts, EarlyExitOptions(8, 6)).memory.parts}
    assert [name for name in parts if name.startswith("weights")] == ["weights of target"]
    slots = 40 + 32 + 1 + 2 * 6 + 1  # text, root, nodes drafted and verified, dead writes
    assert parts["track @after_8"] == slots * 4096 * 2


def test_first_layers_are_a_drafter_of_their_own(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    problem, shapes = facts.problem, facts.shapes
    layers = (FirstLayers("target", 2), FirstLayers("target", 4), FirstLayers("target", 8))
    beams = (Beam("draft", 2), Beam("draft", 4))
    assert possible_drafters(facts) == (
        Model("draft"),
        *beams,
        *layers,
        TEXT,
        Fallback("text", "draft"),
        Interleaved("draft", "text"),
    )
    key = acceptance_key(problem, shapes, FirstLayers("target", 8))
    assert key.drafter == FirstLayers("target", 8) and key.how == "best"
    warm = example_facts(tmp_path, temperature=0.8).problem
    assert acceptance_key(warm, shapes, FirstLayers("target", 8)).how == "draw"
    assert key.drafter_digest == key.target_digest == facts.target.digest
    for wrong in (FirstLayers("target", 32), FirstLayers("other", 2)):
        with pytest.raises(UsageError, match="no model has first layers"):
            acceptance_key(problem, shapes, wrong)


def test_methods_left_out_measure_nothing(tmp_path: Path) -> None:
    assert possible_drafters(example_facts(tmp_path, methods=["draft_model"])) == (
        Model("draft"),
        TEXT,
    )
