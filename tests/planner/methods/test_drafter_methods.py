"""Methods whose drafters only engines run: their plans, what they cost, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import (
    Drafter,
    Drawn,
    Model,
    SkipBlocks,
    SmallCache,
    Source,
)
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import measured_here, named_drafters, possible_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal, discover_methods, own_rounds
from specplan.planner.methods.draft_model import BlockChainOptions
from specplan.planner.problem.loading import problem_from_dict
from tests.planner.example_facts import REHEARSED, SOURCES
from tests.planner.rich_facts import HEAD, HEADS, drafter_profiles, rich_facts, usual_facts

CHAIN = """\
%t0 = root
%q0 = forward head %t0 cache=@head_kv pending=4 features=@states shift=1 keep=@head_states
%t1 = grow %t0 at=%t0 logits=%q0
%c = repeat 2 (%t = %t1) {
  %f = pick %t of=newest
  %q = forward head %f cache=@head_kv features=@head_states shift=1 keep=@head_states write=scratch
  %n = grow %t at=%f logits=%q
  yield %n
}
%l = forward target %c cache=@kv pending=1 keep=@states
%a = accept %c target=%l
%e = emit %a
commit @kv %e
commit @states %e
commit @head_kv %e
commit @head_states %e"""

BLOCK = """\
%t0 = root
%x = forward flash %t0 cache=@flash_kv pending=4 features=@states levels=7 attend=block
%c = repeat 2 (%t = %t0) {
  %f = pick %t of=newest
  %n = grow %t at=%f logits=%x
  yield %n
}
%l = forward target %c cache=@kv pending=1 keep=@states
%v = uniform 3 stream=accept
%a = accept %c target=%l rule=recursive by=%v
%e = emit %a
commit @kv %e
commit @states %e
commit @flash_kv %e"""

CONTINUATIONS = """\
%t0 = root
update @past %t0 last=1
%c = lookup @past %t0 at=%t0 match=[1, 24] children=2 length=4
%l = forward target %c cache=@kv pending=1
%v = uniform 9 stream=accept
%a = accept %c target=%l rule=recursive by=%v
%e = emit %a
commit @kv %e"""


SLOTS = """\
%t0 = root
%x = forward slots %t0 features=@states shift=1 levels=2
%t1 = grow %t0 at=%t0 logits=%x
%f1 = pick %t1 of=newest
%c = grow %t1 at=%f1 logits=%x
%l = forward target %c cache=@kv pending=1 keep=@states levels=3
%a = accept %c target=%l
%e = emit %a
commit @kv %e
commit @states %e"""


def settings_of(facts: ProblemFacts, method: str) -> list[Any]:
    families = discover_methods()[method].choices(facts)
    return [one for family in families if isinstance(family, Family) for one in family.settings]


def plan_of(facts: ProblemFacts, method: str, words: str) -> Plan:
    drafting_method = discover_methods()[method]
    options = next(
        options
        for family in drafting_method.choices(facts)
        if isinstance(family, Family)
        for options in family.settings
        if options.words == words
    )
    plan: Plan = drafting_method.plan(facts, options)
    return plan


def body(plan: Plan) -> str:
    inside = print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0]
    return "\n".join(line.removeprefix("  ") for line in inside.rstrip().split("\n"))


def price(facts: ProblemFacts, plan: Plan, drafter: Drafter) -> Estimate:
    estimate = Pricer(
        facts.device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=32
    ).estimate(plan, facts.profiles[drafter])
    assert isinstance(estimate, Estimate), estimate
    return estimate


def test_a_head_drafts_from_the_targets_states_and_then_from_its_own() -> None:
    plan = plan_of(usual_facts(0.0), "eagle3", "chain of 3 by head")
    assert body(plan) == CHAIN
    text = print_plan(plan)
    assert "state @states = track target layer=[2, 6, 9]\n" in text
    assert "state @head_states = track head layer=last\n" in text


def test_a_block_is_drafted_whole_and_verified_in_part() -> None:
    facts = usual_facts(0.8)
    assert body(plan_of(facts, "block_drafter", "2 of a block of 7 by flash")) == BLOCK
    whole = body(plan_of(facts, "block_drafter", "7 of a block of 7 by flash"))
    assert "pending=9 " in whole and "repeat 7 " in whole


def test_past_outputs_make_draws_depend_on_other_requests() -> None:
    words = "2 continuations of 4 tokens of past outputs"
    drawn = plan_of(usual_facts(0.8), "suffix", words)
    assert body(drawn) == CONTINUATIONS
    assert not drawn.assumptions.reproducible
    assert plan_of(usual_facts(0.0), "suffix", words).assumptions.reproducible


def test_several_modules_take_turns() -> None:
    facts = usual_facts(0.0)
    layer = facts.target.drafter_layers[0]
    two = replace(facts, target=replace(facts.target, drafter_layers=(layer, layer)))
    plan = plan_of(two, "mtp", "chain of 2 by the target's modules")
    lines = [line for line in body(plan).split("\n") if " = forward module" in line]
    assert [line.split()[3] for line in lines] == ["module_0", "module_1"]
    assert all("pending=3" in line for line in lines)
    reads = [line.split("features=")[1].split()[0] for line in lines]
    assert reads == ["@states", "@module_0_states"]
    assert two.modules["module_0"].digest != two.modules["module_1"].digest


def test_the_joining_matrix_is_paid_for_once_a_round() -> None:
    facts = usual_facts(0.0)
    plan = plan_of(facts, "eagle3", "chain of 3 by head")
    passes = {p.width: p for p in price(facts, plan, Model("head")).breakdown if p.model == "head"}
    first, later = passes[4].seconds.median, passes[1].seconds.median / passes[1].times
    head = facts.drafters["head"].shape
    matrix = 2 * 3 * head.hidden_size**2
    assert passes[1].times == 2
    assert first - later >= matrix / 4.8e12  # an H200 reads no faster


def test_what_was_accepted_is_computed_anew(tmp_path: Path) -> None:
    """A cache that keeps text only catches up whenever anything was accepted."""
    given = drafter_profiles()
    none = AcceptanceProfile.from_hazards([[0.0]], key=given[Model("head")].key)
    sure = AcceptanceProfile.from_hazards([[1.0]], key=given[Model("head")].key)
    seconds = []
    for profile in (none, sure):
        facts = rich_facts(tmp_path, given=given | {Model("head"): profile})
        estimate = price(facts, plan_of(facts, "eagle3", "chain of 8 by head"), Model("head"))
        parts = [p for p in estimate.breakdown if p.model == "head" and p.width == 9]
        seconds.append(parts[0].seconds.median)
    assert seconds[1] > seconds[0]


@pytest.mark.parametrize(
    "method", ["eagle3", "mtp", "block_drafter", "parallel_heads", "stepwise_heads"]
)
def test_acceptance_must_be_given(method: str, tmp_path: Path) -> None:
    facts = rich_facts(tmp_path, given={})
    for family in discover_methods()[method].choices(facts):
        assert isinstance(family, Refusal)
        assert "cannot be measured here" in family.reason


def test_trees_need_second_choices(tmp_path: Path) -> None:
    given = drafter_profiles()
    for name, method in ((Model("head"), "eagle3"), (Source("suffix"), "suffix")):
        one = AcceptanceProfile.from_hazards([[0.6]], key=given[name].key)
        facts = rich_facts(tmp_path, given={name: one})
        chains, trees = discover_methods()[method].choices(facts)
        assert isinstance(chains, Family) and isinstance(trees, Refusal)


def test_heads_are_drawn_from_above_temperature_0() -> None:
    """Chains are judged token by token, trees by recursive rejection; each has its own profile."""
    facts = usual_facts(0.8)
    chain = body(plan_of(facts, "eagle3", "chain of 3 by head, drawn"))
    assert "%u0 = uniform 1 stream=draft\n%t1 = grow %t0 at=%t0 logits=%q0 how=draw" in chain
    assert "%u = uniform 1 stream=draft offset=1" in chain and "rule=token by=%v" in chain
    for name in ("eagle3", "mtp", "parallel_heads", "stepwise_heads", "block_drafter",
                 "exit_adapter"):  # fmt: skip
        method = discover_methods()[name]
        families = [one for one in method.choices(facts) if isinstance(one, Family)]
        ways = {option.drawn for family in families for option in family.settings}
        assert ways == {False, True}
        for family in families:
            options = family.settings[-1]
            drafter, plan = method.drafter(facts, options), print_plan(method.plan(facts, options))
            assert isinstance(drafter, Drawn) == options.drawn == ("how=draw" in plan)
            assert ("draw_distinct" in plan) == (options.drawn and family.name.startswith("static"))
            assert options.words.endswith(", drawn") == options.drawn
    greedy = usual_facts(0.0)
    assert not any(isinstance(one, Drawn) for one in possible_drafters(greedy))


def test_profiles_of_heads_by_their_own_names_are_of_best_ranks() -> None:
    facts = usual_facts(0.8)
    named = named_drafters(facts.problem)
    hows = {str(one): acceptance_key(facts.problem, facts.shapes, one).how for one in named}
    assert hows == {
        "draft": "draw_distinct", "text": "given", "head": "best", "flash": "best", "mtp": "best",
        "heads": "best", "beside": "best", "adapter": "best", "steps": "best",
        "slots": "best", "neighbours": "best",
        **dict.fromkeys(SOURCES, "given"),
    }  # fmt: skip
    offered = set(possible_drafters(facts))
    drawn = {one for one in offered if isinstance(one, Drawn)}
    assert {one.name for one in drawn} == {one.name for one in HEADS}
    for one in drawn:
        assert acceptance_key(facts.problem, facts.shapes, one).how == "draw_distinct"
    for wrong, at in ((Drawn("draft"), facts), (Drawn("head"), usual_facts(0.0))):
        with pytest.raises(UsageError, match="a head, at a temperature above 0"):
            acceptance_key(at.problem, at.shapes, wrong)
    block = BlockChainOptions("draft", (-1, 0, 1, 2), (0,) * 4)
    later = own_rounds(facts, discover_methods()["draft_model"], block)  # which is told last

    def whole(some: Iterable[Drafter]) -> set[Drafter]:
        return {one for one in some if not isinstance(one, SkipBlocks | SmallCache)} - {later}

    assert whole(offered) == whole(facts.profiles)


def test_slots_draft_in_the_pass_that_verifies_or_in_one_before() -> None:
    facts = usual_facts(0.0)
    fused = body(plan_of(facts, "trained_slots", "chain of 2 by slots"))
    assert fused == SLOTS
    assert "tree of " in " ".join(one.words for one in settings_of(facts, "trained_slots"))
    separate = plan_of(facts, "trained_slots", "chain of 3 by slots, in a pass of its own")
    assert body(separate).startswith(
        "%t0 = root\n"
        "forward target %t0 cache=@kv pending=1 keep=@states gives=[] levels=3\n"
        "%x = forward slots %t0 features=@states levels=3\n"
    )
    assert "%l = forward target %c cache=@kv pending=1\n" in body(separate)
    chain = plan_of(facts, "trained_slots", "chain of 3 by slots")
    widths = [
        sorted(p.width for p in price(facts, one, Model("slots")).breakdown if p.model == "target")
        for one in (chain, separate)
    ]
    assert widths == [[4 * 4], [1 + 2, 1 + 3]]  # all nodes have slots, or the root alone
    passes = (one for one in round_demands(chain, chain.rounds[0]).steps if one.op.runs is not None)
    rows = {one.model: one.rows for one in passes if isinstance(one, ForwardDemand)}
    assert rows == {"slots": 3, "target": 4}  # what slots say is read from their states alone
    drawn = settings_of(usual_facts(0.8), "trained_slots")
    assert all(one.drawn for one in drawn if "in a pass of its own" in one.words)


def test_slots_need_a_target_that_can_run_them() -> None:
    facts, method = usual_facts(0.0), discover_methods()["trained_slots"]
    learned = replace(facts, target=replace(facts.target, learned_positions=1024))
    (refused,) = method.choices(learned)
    assert isinstance(refused, Refusal) and "learned positions do not run" in refused.reason


def test_models_and_sources_are_measured_here() -> None:
    left = measured_here(usual_facts(0.0).problem)
    assert {str(one) for one in named_drafters(left)} == {"draft", "text", *SOURCES}
    assert [draft.name for draft in left.models.drafts] == ["draft"]
    assert left.sources == ("prompt_lookup", *SOURCES, *REHEARSED)


def test_heads_of_other_targets_are_refused_by_their_key(tmp_path: Path) -> None:
    problem = rich_facts(tmp_path).problem.model_dump(mode="json")

    def load(config: dict[str, Any]) -> None:
        (tmp_path / "head" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        problem_from_dict(problem, tmp_path)

    load(HEAD)
    with pytest.raises(UsageError, match=r"models\.drafts\.1\.path.*vocabulary has 99"):
        load(HEAD | {"vocab_size": 99})
    with pytest.raises(MissingCapabilityError, match="HydraModel"):
        load(HEAD | {"architectures": ["HydraModel"]})


def test_a_target_without_modules_says_so(tmp_path: Path) -> None:
    facts = rich_facts(tmp_path, target_changes={"num_nextn_predict_layers": 0})
    (family,) = discover_methods()["mtp"].choices(facts)
    assert isinstance(family, Refusal) and "no multi-token-prediction modules" in family.reason
