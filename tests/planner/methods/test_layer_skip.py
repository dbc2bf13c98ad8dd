"""Drafting with the target without some blocks: plans, choices, prices, and whose acceptance."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import SkipBlocks
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import round_cost
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import (
    leaves_blocks_out,
    searches_blocks,
)
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import gather_facts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.layer_skip import METHOD, LayerSkipOptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.search import search
from tests.planner.example_facts import SEVEN_BILLION, example_facts, example_problem

SAMPLED = """\
%t0 = root
%c = repeat 6 (%t = %t0) {
  %f = pick %t of=newest
  %q = forward target %f cache=@kv pending=1 skip=[attn.3, mlp.4, attn.9] write=scratch
  %u = uniform 1 stream=draft
  %n = grow %t at=%f logits=%q how=draw by=%u
  yield %n
}
%l = forward target %c cache=@kv pending=1
%v = uniform 7 stream=accept
%a = accept %c target=%l rule=token by=%v
%e = emit %a
commit @kv %e"""
SKIPS = Skips.of([3, 9], [4])


def test_the_plan(tmp_path: Path) -> None:
    plan = METHOD.plan(example_facts(tmp_path, temperature=0.8), LayerSkipOptions(SKIPS.words, 6))
    inside = print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0].rstrip()
    assert "\n".join(line.removeprefix("  ") for line in inside.split("\n")) == SAMPLED
    assert plan.models_run == ("target",)


def test_families_are_the_sets_whose_acceptance_is_known(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    families = METHOD.choices(facts)
    assert [choice.name for choice in families] == ["chain without a1", "chain without a1m1"]
    (first, _) = families
    assert isinstance(first, Family)
    assert [options.length for options in first.settings] == list(range(1, 9))
    assert first.settings[3].words == "chain of 4 without a1"
    draft = AcceptanceProfile.from_hazards([[0.9]], drafter=SkipBlocks("draft", Skips.of([1], [])))
    (refused,) = METHOD.choices(
        replace(facts, profiles={SkipBlocks("draft", Skips.of([1], [])): draft})
    )
    assert isinstance(refused, Refusal) and "acceptance.skip_blocks(target" in refused.reason
    low = example_facts(tmp_path, target=SEVEN_BILLION | {"num_hidden_layers": 2})
    (refused,) = METHOD.choices(low)
    assert isinstance(refused, Refusal) and "both kept" in refused.reason


def test_a_round_reads_what_is_kept_once_per_token_and_everything_once(tmp_path: Path) -> None:
    """Draft & Verify: g passes over the kept blocks, one over all; the head g + 1 times.

    By hand, elements of the 7B model: an attention has 4 h^2, an MLP 3 h i; in bfloat16.
    """
    facts = example_facts(tmp_path)
    plan = METHOD.plan(facts, LayerSkipOptions(SKIPS.words, 6))
    demands = round_demands(plan, plan.rounds[0])
    cost = round_cost(demands, RoundPricer(facts.device, facts.shapes, 1, 40), {})
    attention, mlp = 4 * 4096**2, 3 * 4096 * 11008
    head = 32000 * 4096
    draft, whole = 30 * attention + 31 * mlp, 32 * (attention + mlp)
    assert cost.weight_bytes == 2 * (6 * draft + whole + 7 * head)


def test_attentions_left_out_read_no_cache_and_scratch_is_not_read_twice(tmp_path: Path) -> None:
    """Keys and values of 40 tokens and of the drafted ones before, in the kept layers only."""
    facts = example_facts(tmp_path)
    plan = METHOD.plan(facts, LayerSkipOptions(SKIPS.words, 2))
    demands = round_demands(plan, plan.rounds[0])
    forwards = [step for step in demands.steps if isinstance(step, ForwardDemand)]
    seen = [(step.tokens, step.pending, step.drafted_before, len(step.skips)) for step in forwards]
    assert seen == [(1, 0, 0, 3), (1, 0, 0, 3), (3, 0, 0, 0)]
    assert demands.not_run == {"kv": ()}
    shape = facts.target
    draft = forward_cost(shape, 1, 1, 40, 1, skips=SKIPS)
    whole = forward_cost(shape, 1, 1, 40, 1)
    assert draft.kv_bytes / whole.kv_bytes == pytest.approx(30 / 32)


def test_it_needs_no_memory_for_a_draft_model(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    options = LayerSkipOptions(("attn.1",), 6)
    estimate = Pricer(
        facts.device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=32
    ).estimate(METHOD.plan(facts, options), facts.profiles[SkipBlocks("target", Skips.of([1]))])
    assert isinstance(estimate, Estimate)
    names = [part.name for part in estimate.memory.parts]
    assert [name for name in names if name.startswith("weights")] == ["weights of target"]
    assert not any(name.startswith("track") for name in names)
    assert [part.op for part in estimate.breakdown if part.op.startswith("forward")] == [
        "forward:without_a1", "forward"
    ]  # fmt: skip


def test_a_model_without_blocks_is_a_drafter_of_its_own(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    problem, shapes = facts.problem, facts.shapes
    key = acceptance_key(problem, shapes, SkipBlocks("target", Skips.of([3, 9], [4])))
    assert key.drafter == SkipBlocks("target", SKIPS) and key.how == "best"
    warm = example_facts(tmp_path, temperature=0.8).problem
    assert acceptance_key(warm, shapes, SkipBlocks("target", Skips.of([3, 9], [4]))).how == "draw"
    for wrong in (SkipBlocks("target", Skips.of([32], [])), SkipBlocks("other", Skips.of([1], []))):
        with pytest.raises(UsageError, match="no model has the blocks that"):
            acceptance_key(problem, shapes, wrong)


def test_a_given_profile_names_the_set(tmp_path: Path) -> None:
    """On a data sheet, without weights: the named set is priced, and searched for is none."""
    example_facts(tmp_path)
    skips = Skips.of(range(1, 31), range(8, 24))
    name = SkipBlocks("target", skips)
    path = tmp_path / "given.json"
    AcceptanceProfile.from_hazards([[0.97]], key=AcceptanceKey(name), trials=1000).save(path)
    assert AcceptanceProfile.load(path).key.drafter == name
    problem = problem_from_dict(
        example_problem(acceptance={str(name): str(path)}, methods=["layer_skip"]), tmp_path
    )
    facts = gather_facts(problem)
    assert leaves_blocks_out(problem) and not searches_blocks(problem, facts.target)
    result = search(facts)
    assert result.chosen.method == "layer_skip" and result.chosen.drafter == name
    assert result.speedup.mean > 1.2
    without_it = problem_from_dict(example_problem(methods=["layer_skip"]), tmp_path)
    assert searches_blocks(without_it, facts.target)
    refused = search(gather_facts(without_it))
    (only,) = [c for c in refused.candidates if c.method == "layer_skip"]
    assert only.refusal is not None and "let sets be searched for" in only.refusal
    left = problem_from_dict(example_problem(methods=["draft_model"]), tmp_path)
    assert not leaves_blocks_out(left) and not searches_blocks(left, facts.target)


def test_wrong_names_of_sets(tmp_path: Path) -> None:
    example_facts(tmp_path)
    path = tmp_path / "given.json"
    part = SkipBlocks("target", Skips.of([40]))
    AcceptanceProfile.from_hazards([[0.9]], drafter=part).save(path)
    for name in ("target-x1", "skip_blocks(target, [a1])", "skip_blocks(target)"):
        with pytest.raises(UsageError, match="names no drafter"):
            problem_from_dict(example_problem(acceptance={name: str(path)}), tmp_path)
    problem = problem_from_dict(example_problem(acceptance={str(part): str(path)}), tmp_path)
    words = re.escape(f'no model has the blocks that "{part}" leaves out')
    with pytest.raises(UsageError, match=words):
        gather_facts(problem)


def test_names_of_the_version_before_are_read(tmp_path: Path) -> None:
    example_facts(tmp_path)
    path = tmp_path / "given.json"
    part = SkipBlocks("target", Skips.of([1], [1]))
    AcceptanceProfile.from_hazards([[0.9]], drafter=part).save(path)
    problem = problem_from_dict(example_problem(acceptance={"target-a1m1": str(path)}), tmp_path)
    assert list(problem.acceptance) == [str(part)] and list(problem.stated_acceptance) == [part]
    with pytest.raises(UsageError, match="belongs to no plan") as caught:
        problem_from_dict(example_problem(acceptance={"target+jacobi8": str(path)}), tmp_path)
    assert "specplan profile acceptance" in caught.value.remedy


def test_profiles_of_sets_are_written_and_read(tmp_path: Path) -> None:
    key = AcceptanceKey(SkipBlocks("target", Skips.of([3, 9], [4])))
    profile = AcceptanceProfile(key, Lengths(((2, 0, 1), (0, 0))))
    profile.save(tmp_path / "one.json")
    assert AcceptanceProfile.load(tmp_path / "one.json") == profile
    assert profile.tokens_per_round((-1, 0), (0, 0)).mean > 1
    text = (tmp_path / "one.json").read_text().replace("attn.3", "layer.3")
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(UsageError, match="names no drafter"):
        AcceptanceProfile.load(tmp_path / "one.json")


def test_beside_draft_models_it_must_be_asked_for(tmp_path: Path) -> None:
    target = example_facts(tmp_path, given={}).target
    alone = {"target": {"path": "target"}}
    for changes, asked in (
        ({}, False),
        ({"models": alone}, True),
        ({"models": alone, "methods": ["prompt_lookup"]}, False),
        ({"methods": ["layer_skip", "draft_model"]}, True),
    ):
        problem = problem_from_dict(example_problem(**changes), tmp_path)
        assert leaves_blocks_out(problem) == searches_blocks(problem, target) == asked
        (refused,) = METHOD.choices(gather_facts(problem))
        assert isinstance(refused, Refusal)
        assert ("name the method in methods" in refused.reason) == (not asked)
