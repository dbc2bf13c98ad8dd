"""Drafting on few cached tokens: plans, choices, prices, and whose acceptance."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.static.graph_capabilities import STATIC as COMPILED
from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import ForwardDemand, OpDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import round_cost
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.sparse_cache import (
    BUDGETS,
    CHOSEN_BUDGETS,
    METHOD,
    SparseCacheOptions,
)
from specplan.planner.search.search import search
from tests.planner.example_facts import SEVEN_BILLION, SHARED, example_facts, workload

SELF = """\
%t0 = root
%c = repeat 4 (%t = %t0) {
  %f = pick %t of=newest
  %q = forward target %f cache=@part pending=1 write=scratch
  %u = uniform 1 stream=draft
  %n = grow %t at=%f logits=%q how=draw by=%u
  yield %n
}
%l = forward target %c cache=@kv pending=1
%v = uniform 5 stream=accept
%a = accept %c target=%l rule=token by=%v
%e = emit %a
commit @kv %e
refresh @part"""
GIVEN = {
    name: AcceptanceProfile.from_hazards([[accepted]], key=AcceptanceKey(name), trials=1000)
    for name, accepted in (
        (SmallCache("target", 512), 0.84),
        (SmallCache("draft", 256), 0.7),
        (SmallCache("target", 512, "retrieved"), 0.9),
    )
}
WINDOWED = ModelShape.from_config(
    {**SHARED, **SEVEN_BILLION, "model_type": "mistral", "sliding_window": 64}, dtype="bfloat16"
)


def facts_of(folder: Path, **changes: object) -> ProblemFacts:
    """Two drafters with small caches, on a data sheet."""
    return example_facts(folder, given=GIVEN, backend="none", **changes)  # type: ignore[arg-type]


def inside(plan: Plan) -> str:
    """The ops of the round."""
    text = print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0].rstrip()
    return "\n".join(line.removeprefix("  ") for line in text.split("\n"))


def test_the_target_drafts_through_a_view_of_its_cache(tmp_path: Path) -> None:
    """As the worked example of the op set, `tests/ir/plans/self_draft_view.plan`."""
    facts = example_facts(tmp_path, temperature=0.8)
    plan = METHOD.plan(facts, SparseCacheOptions("target", 512, 4))
    assert inside(plan) == SELF
    text = print_plan(plan)
    assert "state @part = cache target view=@kv policy=sink_recent(sink=16) budget=512" in text
    assert plan.models_run == ("target",)
    asked = METHOD.plan(facts, SparseCacheOptions("target", 512, 4, how="retrieved"))
    assert inside(asked) == SELF
    assert "view=@kv policy=retrieved(chunk=8) budget=512" in print_plan(asked)


def test_a_draft_model_keeps_a_small_cache_of_its_own(tmp_path: Path) -> None:
    plan = METHOD.plan(example_facts(tmp_path), SparseCacheOptions("draft", 256, 2))
    text = print_plan(plan)
    assert "state @draft_kv = cache draft policy=sink_recent(sink=16) budget=256" in text
    assert "forward draft %f cache=@draft_kv pending=2" in text
    assert inside(plan).endswith("commit @draft_kv %e")


def test_families_are_the_drafters_whose_acceptance_is_given(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    families = METHOD.choices(facts)
    names = [
        SmallCache("target", 512),
        SmallCache("draft", 256),
        SmallCache("target", 512, "retrieved"),
    ]
    assert [choice.name for choice in families] == [f"chain by {name}" for name in names]
    (first, _, last) = families
    assert isinstance(first, Family)
    assert [options.length for options in first.settings] == list(range(1, 9))
    assert first.settings[2].words == "chain of 3 by target with 512 cached tokens"
    assert METHOD.drafter(facts, first.settings[2]) == SmallCache("target", 512)
    assert isinstance(last, Family) and METHOD.drafter(facts, last.settings[2]) == SmallCache(
        "target", 512, "retrieved"
    )
    assert last.settings[2].words == "chain of 3 by target with 512 retrieved tokens"
    (refused,) = METHOD.choices(example_facts(tmp_path))
    assert isinstance(refused, Refusal) and "acceptance.small_cache(target, 512)" in refused.reason


@pytest.mark.parametrize("context", [100, 8000])
def test_drafting_reads_the_budget_and_verifying_everything(tmp_path: Path, context: int) -> None:
    facts = facts_of(tmp_path)
    plan = METHOD.plan(facts, SparseCacheOptions("target", 512, 2))
    demands = round_demands(plan, plan.rounds[0])
    forwards = [step for step in demands.steps if isinstance(step, ForwardDemand)]
    assert [step.budget for step in forwards] == [512.0, 512.0, None]
    cost = round_cost(demands, RoundPricer(facts.device, facts.shapes, 1, context), {})
    drafts = [
        forward_cost(facts.target, 1, 1, min(context, 512) + step.drafted_before, 1)
        for step in forwards[:2]
    ]
    whole = forward_cost(facts.target, 1, 3, context, 3)
    assert cost.kv_bytes == sum(draft.kv_bytes for draft in drafts) + whole.kv_bytes


def test_the_view_takes_memory_of_its_own_but_no_weights(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    plan = METHOD.plan(facts, SparseCacheOptions("target", 512, 2))
    estimate = Pricer(
        facts.device, facts.shapes, batch=2, prompt_tokens=2000, output_tokens=32
    ).estimate(plan, facts.profiles[SmallCache("target", 512)])
    assert isinstance(estimate, Estimate)
    sizes = {part.name: part.bytes for part in estimate.memory.parts}
    assert [name for name in sizes if name.startswith("weights")] == ["weights of target"]
    assert 0 < sizes["cache @part"] < 0.3 * sizes["cache @kv"]


def test_it_pays_the_more_the_longer_the_text(tmp_path: Path) -> None:
    gains = []
    for context in (500, 3000):
        asked = workload(batch_sizes=[16], prompt_tokens=context)
        result = search(facts_of(tmp_path, workload=asked, methods=["sparse_cache"]))
        best = next(
            c for c in result.candidates if c.drafter == SmallCache("target", 512) and c.priced
        )
        gains.append(result.plain.estimates[0].seconds_per_token.median
                     / best.estimates[0].seconds_per_token.median)  # fmt: skip
    assert gains[0] < gains[1]


def test_the_interpreter_keeps_a_part_of_a_cache_and_compiled_rounds_do_not(tmp_path: Path) -> None:
    for options in (SparseCacheOptions("target", 512, 2), SparseCacheOptions("draft", 256, 2)):
        plan = METHOD.plan(facts_of(tmp_path), options)
        assert refusals(plan, CAPABILITIES) == ()
        assert any("whole caches only" in refusal.reason for refusal in refusals(plan, COMPILED))


def test_its_drafters_are_measured_where_it_is_named(tmp_path: Path) -> None:
    everything = {SmallCache(role, budget) for role in ("target", "draft") for budget in BUDGETS}
    everything |= {SmallCache("target", budget, "retrieved") for budget in CHOSEN_BUDGETS}
    everything |= {SmallCache("target", budget, "observed") for budget in CHOSEN_BUDGETS}
    assert not everything & set(possible_drafters(facts_of(tmp_path)))
    named = facts_of(tmp_path, methods=["sparse_cache"])
    assert everything <= set(possible_drafters(named))
    windowed = METHOD.drafters(replace(named, target=WINDOWED))
    assert windowed and all(isinstance(one, SmallCache) and one.how == "recent" for one in windowed)


def test_a_refresh_is_priced_by_what_it_moves(tmp_path: Path) -> None:
    """The budget is read and written; where chunks are ranked, all keys are read too."""
    facts = facts_of(tmp_path)
    bandwidth = 1e12
    device = AnalyticDevice("d", 1e12, bandwidth, {"bfloat16": 1e15})
    token = 2 * 32 * 4096 * 2  # keys and values of 32 layers, 2 bytes each
    for how, context, tokens in (
        ("recent", 4000, 2 * 512), ("retrieved", 4000, 2 * 512 + 4000 / 2),
        ("retrieved", 400, 2 * 400),
    ):  # fmt: skip
        plan = METHOD.plan(facts, SparseCacheOptions("target", 512, 2, how))
        step = round_demands(plan, plan.rounds[0]).steps[-1]
        assert isinstance(step, OpDemand)
        assert step.name == ("refresh:sink_recent" if how == "recent" else f"refresh:{how}")
        seconds = RoundPricer(device, facts.shapes, 3, context).op(step)
        assert seconds.median == pytest.approx(3 * tokens * token / bandwidth)


def test_a_prompt_is_observed_in_one_more_pass(tmp_path: Path) -> None:
    """Its last 32 tokens run once again, over the prompt's cache, before the first token."""
    facts = facts_of(tmp_path)
    pricer = Pricer(facts.device, facts.shapes, batch=2, prompt_tokens=2000, output_tokens=32)
    profile = facts.profiles[SmallCache("target", 512)]
    (plain, observed) = (
        pricer.estimate(METHOD.plan(facts, SparseCacheOptions("target", 512, 2, how)), profile)
        for how in ("recent", "observed")
    )
    assert isinstance(plain, Estimate) and isinstance(observed, Estimate)
    more = facts.device.forward_seconds(facts.target, 2, 32, 2000, 0)
    assert observed.prefill.median - plain.prefill.median == pytest.approx(more.median)
    sizes = {part.name: part.bytes for part in observed.memory.parts}
    assert sizes["choices of @part"] == 2 * 32 * 32 * 512 * 8


def test_chunks_are_retrieved_for_the_target_alone(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    with pytest.raises(
        UsageError, match=r"no tokens are chosen by head for .small_cache.draft, 64"
    ):
        acceptance_key(facts.problem, facts.shapes, SmallCache("draft", 64, "retrieved"))
    with pytest.raises(UsageError, match=r"for .small_cache.target, 64, retrieved") as caught:
        acceptance_key(
            facts.problem,
            {**facts.shapes, "target": WINDOWED},
            SmallCache("target", 64, "retrieved"),
        )
    assert "none of its layers has a window" in (caught.value.remedy or "")


@pytest.mark.parametrize("name", [SmallCache("other", 512), SmallCache("text", 64)])
def test_who_has_no_cache_is_refused(tmp_path: Path, name: SmallCache) -> None:
    facts = example_facts(tmp_path)
    with pytest.raises(UsageError, match=re.escape(f'no model drafts as "{name}"')) as caught:
        acceptance_key(facts.problem, facts.shapes, name)
    assert caught.value.where == f"acceptance.{name}"


def test_profiles_are_of_single_draws(tmp_path: Path) -> None:
    cold, warm = example_facts(tmp_path), example_facts(tmp_path, temperature=0.8)
    assert acceptance_key(cold.problem, cold.shapes, SmallCache("target", 512)).how == "best"
    assert acceptance_key(warm.problem, warm.shapes, SmallCache("target", 512)).how == "draw"
