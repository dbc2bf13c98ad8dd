"""Names of values do not matter, everything else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specplan.ir import Plan, parse_plan, print_plan
from specplan.ir.plan import walk
from specplan.ir.values import Value
from specplan.passes.pipeline import PASSES, PassError, run_passes
from specplan.passes.renumber import renumber
from tests.ir.plans_on_disk import NAMES, plan_of, text_of


@pytest.mark.parametrize("name", NAMES)
def test_renumbering_is_idempotent_and_keeps_rules(name: str) -> None:
    plan = plan_of(name)
    once = run_passes(plan, (renumber,))
    assert renumber(once) is once
    assert renumber(plan) == once


def test_text_with_other_names_is_the_same_plan() -> None:
    text = text_of("draft_chain")
    renamed = text.replace("%q", "%logits").replace("%t0", "%start")
    assert renamed != text
    plan, longer = parse_plan(text), parse_plan(text.replace("repeat 4", "repeat 5"))
    assert renumber(parse_plan(renamed)) == renumber(plan) != renumber(longer)


def test_a_pass_that_breaks_a_rule_is_named() -> None:
    text = text_of("draft_chain")

    def drop_first_op(plan: Plan) -> Plan:
        item = plan.rounds[0]
        return replace(plan, rounds=(replace(item, ops=item.ops[1:]),))

    with pytest.raises(PassError, match="pass drop_first_op after renumber broke a rule"):
        run_passes(parse_plan(text), (renumber, drop_first_op))


def test_a_pass_that_ends_in_an_error_is_named() -> None:
    text = text_of("draft_chain")

    def look_up_nothing(plan: Plan) -> Plan:
        raise KeyError("%q")

    words = "pass look_up_nothing after renumber raised KeyError: '%q'"
    with pytest.raises(PassError, match=words) as error:
        run_passes(parse_plan(text), (renumber, look_up_nothing))
    assert isinstance(error.value.__cause__, KeyError)


def test_watch_sees_every_pass() -> None:
    text = text_of("draft_chain")
    seen: list[tuple[str, bool]] = []
    plan = run_passes(
        parse_plan(text), watch=lambda name, _, changed, __: seen.append((name, changed))
    )
    assert [name for name, _ in seen] == [item.__name__ for item in PASSES]  # type: ignore[attr-defined]
    assert dict(seen)["renumber"] and dict(seen)["unroll"]
    assert Value("v0") in {name for op in walk(plan.rounds[0].ops) for name in op.results}
    assert print_plan(plan) == print_plan(run_passes(plan))
