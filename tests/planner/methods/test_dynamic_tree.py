"""Trees grown by a beam as candidates: plans, choices, refusals, whose acceptance, the choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import Beam
from specplan.cost_models.acceptance.evidence.pools import Pools, pool_size
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.dynamic_tree import METHOD, DynamicTreeOptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.search import search
from tests.planner.example_facts import example_facts, example_problem, made_up_pools, profiles
from tests.planner.rich_facts import usual_facts

SAMPLED = """\
%t0 = root
%q0 = forward draft %t0 cache=@draft_kv pending=2
%t1 = grow %t0 at=%t0 logits=%q0 children=4
%pool = repeat 4 (%t = %t1) {
  %f = pick %t of=newest best=4
  %q = forward draft %f cache=@draft_kv
  %n = grow %t at=%f logits=%q children=4
  yield %n
}
%b = pick %pool of=all best=16
%c = prune %pool to=%b
%l = forward target %c cache=@kv pending=1
%v = uniform 17 stream=accept
%a = accept %c target=%l rule=recursive by=%v
%e = emit %a
commit @kv %e
commit @draft_kv %e"""

WHOLE = """\
%t0 = root
%q0 = forward draft %t0 cache=@draft_kv pending=2
%t1 = grow %t0 at=%t0 logits=%q0 children=2
%c = repeat 1 (%t = %t1) {
  %f = pick %t of=newest best=2
  %q = forward draft %f cache=@draft_kv
  %n = grow %t at=%f logits=%q children=2
  yield %n
}
%l = forward target %c cache=@kv pending=1
%a = accept %c target=%l
%e = emit %a
commit @kv %e
commit @draft_kv %e"""


def body(facts: ProblemFacts, options: DynamicTreeOptions) -> str:
    plan = METHOD.plan(facts, options)
    assert verify_plan(plan) == ()
    inside = print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0].rstrip()
    return "\n".join(line.removeprefix("  ") for line in inside.split("\n"))


def family(facts: ProblemFacts) -> Family[DynamicTreeOptions]:
    (only,) = METHOD.choices(facts)
    assert isinstance(only, Family)
    return only


def test_the_plans(tmp_path: Path) -> None:
    warm = example_facts(tmp_path, temperature=0.8)
    assert body(warm, DynamicTreeOptions("draft", 4, 5, 16)) == SAMPLED
    assert body(example_facts(tmp_path), DynamicTreeOptions("draft", 2, 2, 6)) == WHOLE


def test_words_and_drafter(tmp_path: Path) -> None:
    options = DynamicTreeOptions("draft", 4, 5, 16)
    assert options.words == "dynamic tree of 16, beam 4, depth 5, by draft"
    assert METHOD.drafter(example_facts(tmp_path), options) == Beam("draft", 4)


def test_every_draft_model_is_a_drafter_with_every_beam() -> None:
    facts = usual_facts(0.0)  # with a head, a block drafter and a module of the target's
    assert METHOD.drafters(facts) == (Beam("draft", 2), Beam("draft", 4))
    assert set(METHOD.drafters(facts)) <= set(possible_drafters(facts))
    three = replace(facts.drafts["draft"], vocab_size=3)
    small = replace(facts, drafts={"draft": three})
    assert METHOD.drafters(small) == (Beam("draft", 2),)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_profile_is_of_best_ranks_and_of_its_beam(temperature: float) -> None:
    facts = usual_facts(temperature)
    key = acceptance_key(facts.problem, facts.shapes, Beam("draft", 4))
    assert (key.drafter, key.how, key.temperature) == (Beam("draft", 4), "best", temperature)
    assert key.drafter_digest == facts.shapes["draft"].digest
    for wrong in (Beam("target", 4), Beam("head", 4), Beam("module_0", 2), Beam("other", 2)):
        with pytest.raises(UsageError, match="no draft model grows trees") as caught:
            acceptance_key(facts.problem, facts.shapes, wrong)
        assert caught.value.where == f"acceptance.{wrong}" and caught.value.remedy


def test_settings_that_emit_no_more_are_left_out(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    settings = family(facts).settings
    assert {option.beam for option in settings} == {2, 4}
    for option in settings:
        assert option.nodes <= pool_size(option.beam, option.depth)
        profile = facts.profiles[Beam("draft", option.beam)]
        mine = tokens(profile, option.depth, option.nodes)
        for other in settings:
            fewer = other.depth <= option.depth and other.nodes <= option.nodes
            if other.beam == option.beam and other != option and fewer:
                assert tokens(profile, other.depth, other.nodes) < mine
    flat = Pools(6, (((1,),) * 20,) * 4, 2)  # nothing is ever accepted
    key = acceptance_key(facts.problem, facts.shapes, Beam("draft", 2))
    nothing = replace(facts, profiles={Beam("draft", 2): AcceptanceProfile(key, flat)})
    assert [(o.depth, o.nodes) for o in family(nothing).settings] == [(2, 4)]


def tokens(profile: AcceptanceProfile, depth: int, nodes: int) -> float:
    chain = range(-1, depth - 1), (0,) * depth
    return profile.evidence.cut(depth, nodes).model.tokens_per_round(*chain).mean


def test_shallow_pools_give_shallow_trees(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    key = acceptance_key(facts.problem, facts.shapes, Beam("draft", 4))
    three = AcceptanceProfile(key, made_up_pools(layers=3, beam=4))
    settings = family(replace(facts, profiles={Beam("draft", 4): three})).settings
    assert {option.depth for option in settings} == {2, 3}


def test_refusals_say_why(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    (unknown,) = METHOD.choices(replace(facts, profiles={}))
    assert isinstance(unknown, Refusal) and unknown.name == "dynamic tree by draft"
    assert "workload.prompts" in unknown.reason and "acceptance.beam(draft, 4)" in unknown.reason
    key = acceptance_key(facts.problem, facts.shapes, Beam("draft", 4))
    rates = {Beam("draft", 4): AcceptanceProfile.from_hazards([[0.6]], key=key)}
    (other,) = METHOD.choices(replace(facts, profiles=rates))
    assert isinstance(other, Refusal) and '"beam(draft, 4)" holds hazards' in other.reason
    alone = example_facts(tmp_path, models={"target": {"path": "target"}}, given={})
    (none,) = METHOD.choices(alone)
    assert isinstance(none, Refusal) and "models.drafts" in none.reason


def test_a_problem_may_name_the_profile_of_a_beam(tmp_path: Path) -> None:
    example_facts(tmp_path)
    key = AcceptanceKey(Beam("draft", 4))
    AcceptanceProfile(key, made_up_pools(beam=4)).save(tmp_path / "beam.json")
    given = {"beam(draft, 4)": "beam.json"}
    problem = problem_from_dict(example_problem(acceptance=given), tmp_path)
    assert list(problem.stated_acceptance) == [Beam("draft", 4)]
    with pytest.raises(UsageError, match="names no drafter"):
        problem_from_dict(example_problem(acceptance={"draft^": "beam.json"}), tmp_path)


def test_it_is_chosen_where_it_is_best_and_explained(tmp_path: Path) -> None:
    """Draft models that are seldom right at once, and often among the first choices."""
    low = profiles(True, ((0.3, 0.1),))
    facts = example_facts(tmp_path, backend="none")
    facts = replace(facts, profiles={**facts.profiles, **low})
    searched = search(facts)
    assert searched.chosen.method == "dynamic_tree" and searched.chosen.admissible
    assert searched.speedup.low > 1.0
    data = explain(searched)
    (accepted,) = data["acceptance"]
    assert accepted["drafter"] == str(searched.chosen.drafter)
    shares = [entry["accepted_at_least"]["mean"] for entry in accepted["by_depth"]]
    assert shares == sorted(shares, reverse=True) and 0 < shares[0] < 1
    assert data["laws"][0]["law"] == "sequoia"
    unknowns = {point["unknown"] for point in data["break_even"][0]["points"]}
    assert {"acceptance", "draft_seconds", "batch", "prompt_tokens"} == unknowns
    text = "\n".join(explain_words(data))
    assert searched.chosen.words in text and f'"{searched.chosen.drafter}" drafts' in text
    assert ("acceptance", str(searched.chosen.drafter)) in {
        (item.kind, item.name) for item in searched.confidence.measurements
    }
