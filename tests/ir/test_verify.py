"""Each named rule: the smallest edit that breaks it, and the neighbour that is fine."""

from __future__ import annotations

import pytest

from specplan.ir import check_plan, parse_plan, verify_plan
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import RULES
from specplan.ir.tables.builtin import BUILTIN, Declaration
from tests.ir.broken_plans import Broken
from tests.ir.broken_rounds import CACHES, LAWS, ROUNDS
from tests.ir.broken_statements import NAMES_AND_TYPES, STATEMENTS, TREES
from tests.ir.plans_on_disk import plan_of, text_of

BROKEN = {**STATEMENTS, **NAMES_AND_TYPES, **TREES, **ROUNDS, **CACHES, **LAWS}
every_case = pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)


@every_case
def test_the_edit_breaks_its_rule_and_no_other(case: Broken) -> None:
    findings = verify_plan(parse_plan(case.text))
    assert {item.rule for item in findings} == {case.rule}, [str(item) for item in findings]
    assert all(case.place in item.where for item in findings), [str(item) for item in findings]
    assert all(item.what and str(item).count(f"[{case.rule}]") == 1 for item in findings)


@every_case
def test_the_neighbour_breaks_nothing(case: Broken) -> None:
    assert [str(item) for item in verify_plan(parse_plan(case.neighbour))] == []


def test_every_rule_is_broken_by_some_case() -> None:
    assert {case.rule for case in BROKEN.values()} == set(RULES)
    assert len(RULES) == len(set(RULES))


def test_the_first_broken_rule_is_raised_with_its_place() -> None:
    case = BROKEN["drafter_starves"]
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(case.text))
    assert caught.value.where.startswith("plan draft_chain, round decode, `%q = forward draft %f")
    assert "[starvation] after a round @dkv may lack 2 tokens" in caught.value.what
    assert "plan_language.md" in caught.value.remedy and caught.value.exit_code == 2
    assert check_plan(plan_of("draft_chain")) is plan_of("draft_chain")


def test_independent_rules_are_reported_together() -> None:
    text = text_of("draft_chain").replace("uniform 5", "uniform 4").replace("g=2", "g=1")
    assert [item.rule for item in verify_plan(parse_plan(text))] == ["starvation", "law"]
    with pytest.raises(UsageError, match=r"\(1 more\)"):
        check_plan(parse_plan(text))


def test_a_rule_broken_in_every_trip_is_reported_once() -> None:
    text = text_of("draft_chain").replace(" how=draw by=%u", " how=draw")
    assert len(verify_plan(parse_plan(text))) == 1


def test_tables_are_open() -> None:
    text = text_of("autoregressive").replace("target=%l", "target=%l rule=hopeful(by=0.5)")
    lenient = Declaration(table="rule", name="hopeful", parameters=(("by", float),))
    assert [item.rule for item in verify_plan(parse_plan(text))] == ["entry"]
    assert verify_plan(parse_plan(text), BUILTIN.extended(lenient)) == ()
    assert [item.rule for item in verify_plan(parse_plan(text), BUILTIN)] == ["entry"]


@pytest.mark.parametrize("rule", ["deterministic", "naive", "gumbel"])
def test_rules_that_read_no_laws_judge_what_is_left_of_drawn_trees(rule: str) -> None:
    text = BROKEN["draws_pruned"].text.replace("rule=recursive", f"rule={rule}")
    assert verify_plan(parse_plan(text)) == ()


def test_later_layers_of_a_deeper_stack_are_the_last_ones() -> None:
    """The end of the stack is the last layer that any forward names, in whichever round."""
    body = text_of("autoregressive").partition("round decode {")[2]
    more = "round more {" + body.replace("pending=1", "pending=1 layers=[0:48]")
    schedule = 'schedule {\n  when "batch < 2" more\n  otherwise decode\n}\n'
    findings = verify_plan(parse_plan(text_of("early_exit_verified") + more + schedule))
    assert [(item.rule, "decode, `%e" in item.where) for item in findings] == [("lossless", True)]


def test_what_only_a_branch_computed_is_not_counted_on() -> None:
    text = text_of("static_tree").replace(
        "  %q1 = forward draft %f1 cache=@dkv\n",
        "  %n1 = measure %q0 top1\n"
        '  %g1 = compute "n < 0.5" n=%n1\n'
        "  %q1 = when %g1 otherwise=[%q0] {\n"
        "    %z1 = forward draft %f1 cache=@dkv\n"
        "    yield %z1\n"
        "  }\n",
    )
    findings = verify_plan(parse_plan(text))
    assert [item.rule for item in findings] == ["residency", "starvation"]
    assert "forward draft %f2" in findings[0].where
