"""What lower layers have run is not run again: rewritten texts, and what is left alone."""

from __future__ import annotations

import pytest

from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.passes.pipeline import run_passes
from specplan.passes.share_prefix import share_prefix
from tests.ir.plans_on_disk import NAMES, text_of

CHAIN = """\
  %t0 = root
  %c = repeat 4 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward target %f cache=@kv pending=1 layers=[0:8]
    %n = grow %t at=%f logits=%q
    yield %n
  }
  %l = forward target %c cache=@kv pending=1 layers=[0:32]
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
"""
TREE = """\
  %t0 = root
  %q0 = forward target %t0 cache=@kv pending=1 layers=[0:1]
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest nodes=[0, 2]
  %q1 = forward target %f1 cache=@kv layers=[0:1]
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 1]
  %l = forward target %c cache=@kv pending=1 layers=[0:3]
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
"""


def plan_of(body: str, states: str = "") -> Plan:
    return parse_plan(
        f"plan early_exit_verified\nmodel target\nstate @kv = cache target\n{states}"
        f"round decode {{\n{body}}}\n"
    )


def shared(body: str, states: str = "") -> str:
    """The plan's text after the pass, checked before and after."""
    return print_plan(run_passes(plan_of(body, states), (share_prefix,)))


def test_the_end_of_a_chain_is_run_and_the_rest_goes_on() -> None:
    """LayerSkip as it is written in the worked plan, from what says nothing of sharing."""
    worked = text_of("early_exit_verified").replace("@x", "@after_8")
    assert shared(CHAIN) == print_plan(parse_plan(worked))


def test_of_a_tree_all_nodes_that_were_not_expanded_are_run() -> None:
    text = shared(TREE)
    assert "state @after_1 = track target layer=1\n" in text
    assert (
        "  %missing = pick %c of=all nodes=[1, 3, 4, 5]\n"
        "  forward target %missing cache=@kv layers=[0:1] keep=@after_1 gives=[]\n"
        "  %l = forward target %c cache=@kv pending=1 layers=[1:3] features=@after_1\n"
    ) in text
    assert text.endswith("  commit @kv %e\n  commit @after_1 %e\n}\n")


def test_a_track_that_is_there_is_used() -> None:
    body = CHAIN.replace("layers=[0:8]", "layers=[0:8] keep=@x") + "  commit @x %e\n"
    text = shared(body, "state @x = track target layer=8\n")
    assert text == text_of("early_exit_verified")
    assert shared(CHAIN, "state @x = track target layer=8\n") == text


def test_a_name_that_is_taken_is_not_used() -> None:
    text = shared(CHAIN, "state @after_8 = source ngram(order=3)\n")
    assert "state @after_8_1 = track target layer=8\n" in text


def test_nothing_is_missing_where_drafts_ran_all_nodes() -> None:
    body = CHAIN.replace(
        "  %l =", "  %z = pick %c of=newest\n"
        "  forward target %z cache=@kv layers=[0:8] gives=[]\n  %l ="
    )  # fmt: skip
    plan = run_passes(plan_of(body), (share_prefix,))
    assert print_plan(plan) == shared(CHAIN).replace("%last", "%z")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("layers=[0:32]", ""),  # how high the stack is, is not said
        ("layers=[0:8]", "layers=[0:8] write=scratch"),
        ("layers=[0:8]", "skip=[attn.3] write=scratch"),
        ("layers=[0:8]", "layers=[0:32]"),  # drafts are no lower than the verification
        ("pending=1 layers=[0:32]", "pending=2 layers=[0:32]"),  # the drafts catch up less
        ("cache=@kv pending=1 layers=[0:8]", "cache=@own pending=1 layers=[0:8]"),
    ],
)
def test_what_differs_is_left_alone(before: str, after: str) -> None:
    state = "state @own = cache target\n" if "@own" in after else ""
    commit = "  commit @own %e\n" if state else ""
    plan = plan_of(CHAIN.replace(before, after) + commit, state)
    assert share_prefix(plan) is plan


def test_loops_that_may_stop_are_left_alone() -> None:
    """Then the end of a request's chain is wherever it stopped."""
    stopping = CHAIN.replace(
        "yield %n", '%m = measure %q top1\n    %s = compute "m < 0.5" m=%m\n    yield %n until=%s'
    )
    plan = plan_of(stopping)
    assert not list(verify_plan(plan))
    assert share_prefix(plan) is plan


@pytest.mark.parametrize("name", NAMES)
def test_worked_plans_share_already_or_never(name: str) -> None:
    plan = parse_plan(text_of(name))
    assert share_prefix(plan) is plan


def test_once_is_enough() -> None:
    once = share_prefix(plan_of(TREE))
    assert share_prefix(once) is once
