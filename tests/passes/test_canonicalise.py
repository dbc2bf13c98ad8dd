"""What changes nothing goes, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specplan.ir.plan import Assumptions
from specplan.ir.text.printer import print_plan
from specplan.passes.canonicalise import canonicalise
from specplan.passes.pipeline import run_passes
from tests.ir.plans_on_disk import NAMES, plan_of
from tests.passes.plans import written

VERIFY = """
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e"""
DRAFTED = """
  %t0 = root
  %q = forward draft %t0 cache=@dkv pending=2
  %c = grow %t0 at=%t0 logits=%q children=2"""


def body(text: str) -> str:
    """A round as it is printed after the pass."""
    text_after = print_plan(run_passes(written(text), (canonicalise,)))
    return text_after[text_after.index("round decode") :]


def test_what_is_never_read_is_not_computed() -> None:
    dead = "\n  %u = uniform 3 stream=draft\n  %x = pick %c of=all best=1\n  %y = prune %c to=%x"
    assert body(DRAFTED + dead + VERIFY + "\n  commit @dkv %e") == body(
        DRAFTED + VERIFY + "\n  commit @dkv %e"
    )


def test_forwards_have_an_effect() -> None:
    """A row that nobody reads was computed by a pass that filled a cache."""
    text = "\n  %t0 = root\n  %q = forward draft %t0 cache=@dkv pending=2\n  %c = root" + VERIFY
    assert "forward draft" in body(text + "\n  commit @dkv %e")


@pytest.mark.parametrize(
    "nothing",
    [
        "%d = graft %c",
        "%all = pick %c of=all\n  %d = prune %c to=%all",
        "%d = prune %c to=%c",
        "%d = repeat 0 (%t = %c) {\n    %x = pick %t of=newest\n    yield %t\n  }",
    ],
)
def test_what_changes_nothing_goes(nothing: str) -> None:
    end = "\n  commit @dkv %e"
    changed = DRAFTED + f"\n  {nothing}" + VERIFY.replace("%c", "%d") + end
    assert body(changed) == body(DRAFTED + VERIFY + end)


def test_a_tree_that_is_cut_is_cut() -> None:
    cut = "\n  %b = pick %c of=all best=1\n  %d = prune %c to=%b"
    text = body(DRAFTED + cut + VERIFY.replace("%c", "%d") + "\n  commit @dkv %e")
    assert "prune" in text and "best=1" in text


def test_at_temperature_0_nothing_is_drawn() -> None:
    warm = plan_of("draft_chain")
    cold = replace(warm, assumptions=replace(warm.assumptions, temperature=0.0))
    text = print_plan(run_passes(cold, (canonicalise,)))
    assert "uniform" not in text and "rule=" not in text and "how=" not in text
    assert "uniform" in print_plan(run_passes(warm, (canonicalise,)))


@pytest.mark.parametrize("name", NAMES)
def test_once_is_enough_and_rules_hold(name: str) -> None:
    once = run_passes(plan_of(name), (canonicalise,))
    assert canonicalise(once) is once


def test_a_tree_that_is_cut_in_the_first_trip_alone_is_cut() -> None:
    """In the last trip the first node is all that there is."""
    end = "\n  commit @dkv %e"
    loop = """
  %d = repeat 2 (%t = %c) {
    %x = pick %t of=all nodes=[0]
    %y = prune %t to=%x
    yield %y
  }"""
    assert "prune" in body(DRAFTED + loop + VERIFY.replace("%c", "%d") + end)


def test_a_plan_for_temperature_0_serves_no_other() -> None:
    judged = VERIFY.replace("target=%l", "target=%l rule=recursive by=%v")
    drawn = "\n  %v = uniform 3 stream=accept"
    plan = written(DRAFTED + drawn + judged + "\n  commit @dkv %e")
    assert not plan.greedy_only
    assert replace(plan, assumptions=Assumptions(temperature=0.0)).greedy_only
    assert not replace(plan, assumptions=Assumptions(temperature=0.8)).greedy_only
