"""The plans of the first methods, as text, and the choices they offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import TEXT, Model
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.ir.text.printer import print_plan
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.method import Family, Method, Options, Refusal, discover_methods
from specplan.planner.methods.draft_model import CHAIN_LENGTHS, DraftModelOptions
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.planner.methods.prompt_lookup import METHOD as PROMPT_LOOKUP
from specplan.planner.methods.prompt_lookup import PromptLookupOptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.trees import (
    AcceptanceTable,
    GrowLevel,
    chain,
    search_trees,
)
from specplan.planner.trees.candidates import DEPTH, NODES, RANKS
from tests.planner.example_facts import example_facts, example_problem, profiles, workload
from tests.planner.rich_facts import usual_facts
from tests.planner.trees.tables import tree_of_levels


def body(method: Method[Options], facts: ProblemFacts, options: Options) -> str:
    """The ops of the plan's round."""
    text = print_plan(method.plan(facts, options))
    inside = text.split("round decode {\n")[1].rsplit("}", 1)[0]
    return "\n".join(line.removeprefix("  ") for line in inside.rstrip().split("\n"))


SAMPLED_CHAIN = """\
%t0 = root
%c = repeat 4 (%t = %t0) {
  %f = pick %t of=newest
  %q = forward draft %f cache=@draft_kv pending=2
  %u = uniform 1 stream=draft
  %n = grow %t at=%f logits=%q how=draw by=%u
  yield %n
}
%l = forward target %c cache=@kv pending=1
%v = uniform 5 stream=accept
%a = accept %c target=%l rule=token by=%v
%e = emit %a
commit @kv %e
commit @draft_kv %e"""

SAMPLED_TREE = """\
%t0 = root
%q0 = forward draft %t0 cache=@draft_kv pending=2
%u0 = uniform 3 stream=draft
%t1 = grow %t0 at=%t0 logits=%q0 children=3 how=draw_distinct by=%u0
%f1 = pick %t1 of=newest nodes=[0, 1]
%q1 = forward draft %f1 cache=@draft_kv
%u1 = uniform 3 stream=draft offset=3
%t2 = grow %t1 at=%f1 logits=%q1 children=[2, 1] how=draw_distinct by=%u1
%f2 = pick %t2 of=newest nodes=[0]
%q2 = forward draft %f2 cache=@draft_kv
%u2 = uniform 2 stream=draft offset=6
%c = grow %t2 at=%f2 logits=%q2 children=2 how=draw_distinct by=%u2
%l = forward target %c cache=@kv pending=1
%v = uniform 9 stream=accept
%a = accept %c target=%l rule=recursive by=%v
%e = emit %a
commit @kv %e
commit @draft_kv %e"""

GREEDY_LOOKUP = """\
%t0 = root
%c = lookup @text %t0 at=%t0 match=[1, 3] length=10
%l = forward target %c cache=@kv pending=1
%a = accept %c target=%l
%e = emit %a
commit @kv %e"""


def test_the_plans_are_those_of_the_design_sketch(tmp_path: Path) -> None:
    sampled = example_facts(tmp_path, temperature=0.8)
    line = chain(4)
    tree = tree_of_levels([GrowLevel((0,), (3,)), GrowLevel((0, 1), (2, 1)), GrowLevel((0,), (2,))])
    for shape, expected in ((line, SAMPLED_CHAIN), (tree, SAMPLED_TREE)):
        options = DraftModelOptions("draft", shape.parents, shape.ranks)
        assert body(DRAFT_MODEL, sampled, options) == expected
    greedy = example_facts(tmp_path)
    assert body(PROMPT_LOOKUP, greedy, PromptLookupOptions(1, 3, 10)) == GREEDY_LOOKUP


def test_greedy_plans_draw_nothing() -> None:
    facts = usual_facts(0.0)
    for method in discover_methods().values():
        for family in method.choices(facts):
            assert isinstance(family, Family)
            for options in family.settings:
                lines = print_plan(method.plan(facts, options)).splitlines()
                assert not any(" by=" in line for line in lines)
                numbers = (line for line in lines if " = uniform " in line)
                assert all("stream=stop" in line for line in numbers)  # these may end a draft


def test_assumptions_say_where_it_was_priced(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, temperature=0.8)
    text = print_plan(PROMPT_LOOKUP.plan(facts, PromptLookupOptions(1, 3, 4)))
    assert "assume temperature=0.8 batch=1..4 context=1..72\n" in text
    assert f'model target digest="{facts.target.digest}" dtype=bfloat16' in text


def families(facts: ProblemFacts) -> dict[str, Family[DraftModelOptions] | Refusal]:
    return {choice.name: choice for choice in DRAFT_MODEL.choices(facts)}


def test_chains_and_trees_of_the_draft_model(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    by_name = families(facts)
    chains, trees = by_name["chain by draft"], by_name["static tree by draft"]
    assert isinstance(chains, Family) and isinstance(trees, Family)
    lengths = [len(options.tree) for options in chains.settings]
    assert lengths == sorted(_near_chains(facts))
    assert 1 < len(lengths) < len(CHAIN_LENGTHS)
    table = AcceptanceTable.of_hazard(facts.profiles[Model("draft")].hazard, DEPTH, RANKS)
    searched = search_trees(table, max(NODES), DEPTH)
    proposed = [options.tree for options in trees.settings]
    assert {len(tree) for tree in proposed} >= set(NODES) - {2}
    best = {(len(tree), tree.depth): tree.value(table) for tree in proposed}
    assert all(value <= searched.values[d, n] + 1e-9 for (n, d), value in best.items())
    assert sum(value >= searched.values[d, n] - 1e-9 for (n, d), value in best.items()) > 8
    assert not any(options.tree.is_chain for options in trees.settings)
    four = next(options for options in chains.settings if len(options.tree) == 4)
    assert four.words == "chain of 4 by draft" and four.as_dict()["nodes"] == 4


def _near_chains(facts: ProblemFacts) -> set[int]:
    """Lengths whose seconds per token are within a quarter of the best at some load."""
    near: set[int] = set()
    hazard = facts.profiles[Model("draft")].hazard
    for batch, context in facts.loads:
        seconds = {}
        for length in CHAIN_LENGTHS:
            verify = facts.device.forward_seconds(facts.target, batch, length + 1, context).median
            draft = facts.device.forward_seconds(facts.shape("draft"), batch, 1, context).median
            reached, tokens = 1.0, 1.0
            for depth in range(1, length + 1):
                reached *= hazard(depth, 0)
                tokens += reached
            seconds[length] = (verify + length * draft) / tokens
        near |= {n for n, taken in seconds.items() if taken <= 1.25 * min(seconds.values())}
    return near


def test_a_profile_of_plain_draws_serves_chains_only(tmp_path: Path) -> None:
    key = AcceptanceKey(Model("draft"), temperature=0.8, how="draw")
    given = {Model("draft"): AcceptanceProfile.from_hazards([[0.7]], key=key)}
    by_name = families(example_facts(tmp_path, temperature=0.8, given=given))
    assert isinstance(by_name["chain by draft"], Family)
    refusal = by_name["static tree by draft"]
    assert isinstance(refusal, Refusal) and "how=draw" in refusal.reason


def test_a_draft_without_second_choices_offers_no_tree(tmp_path: Path) -> None:
    given = {Model("draft"): AcceptanceProfile.from_hazards([[0.7]])}
    refusal = families(example_facts(tmp_path, given=given))["static tree by draft"]
    assert isinstance(refusal, Refusal) and "second choice" in refusal.reason


def test_prompt_lookup_uses_the_match_that_was_measured(tmp_path: Path) -> None:
    key = AcceptanceKey(TEXT, how="given", match=(2, 4))
    given = {TEXT: AcceptanceProfile.from_hazards([[0.3]], key=key)}
    (family,) = PROMPT_LOOKUP.choices(example_facts(tmp_path, given=given))
    assert isinstance(family, Family)
    assert {(o.shortest_match, o.longest_match) for o in family.settings} == {(2, 4)}
    assert [o.length for o in family.settings] == list(range(2, 17))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (AcceptanceKey(Model("draft"), temperature=0.8), "temperature: 0.8 against 0.0"),
        (AcceptanceKey(Model("draft"), how="draw"), "how: 'draw' against 'best'"),
        (AcceptanceKey(Model("draft"), target_digest="0123"), "target_digest"),
        (AcceptanceKey(Model("draft"), task="prose"), "task: 'prose' against 'code'"),
        (AcceptanceKey(Model("other")), "drafter"),
    ],
)
def test_profiles_of_something_else_are_refused(
    key: AcceptanceKey, says: str, tmp_path: Path
) -> None:
    profile = AcceptanceProfile.from_hazards([[0.5, 0.1]], key=key)
    with pytest.raises(UsageError, match="measured on something else") as caught:
        example_facts(tmp_path, given={Model("draft"): profile}, workload=workload(task="code"))
    assert says in caught.value.what and caught.value.where == "acceptance.draft"
    assert caught.value.remedy


def test_profiles_named_by_the_problem_are_read(tmp_path: Path) -> None:
    example_facts(tmp_path)
    profiles(greedy=True)[Model("draft")].save(tmp_path / "draft.json")
    problem = problem_from_dict(example_problem(acceptance={"draft": "draft.json"}), tmp_path)
    assert gather_facts(problem).profiles[Model("draft")].hazard(1, 0) == 0.6
    (tmp_path / "draft.json").write_text("{}")
    with pytest.raises(UsageError) as caught:
        gather_facts(problem)
    assert caught.value.where.startswith("acceptance.draft -> ")


def test_a_device_that_was_not_measured_is_asked_for(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    problem = facts.problem.model_copy(update={"device": "measured"})
    with pytest.raises(UsageError, match="specplan profile device"):
        gather_facts(problem)
    assert gather_facts(problem, device=facts.device).device is facts.device


def test_lengths_of_a_trace_are_averaged(tmp_path: Path) -> None:
    lines = '{"prompt_tokens": 10, "output_tokens": 30}\n{"prompt_tokens": 50, "output_tokens": 10}'
    (tmp_path / "trace.jsonl").write_text(lines)
    facts = example_facts(tmp_path, workload={"batch_sizes": [2], "trace": "trace.jsonl"})
    assert facts.mean_prompt_tokens == 30
    assert facts.mean_context == (30 * 25 + 10 * 55) / 40  # weighted by output tokens
    assert facts.longest_text == 60 and facts.batch_sizes == (2,)
