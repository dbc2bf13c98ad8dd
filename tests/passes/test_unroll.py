"""Loops become straight lines that do the same steps, draw the same numbers and cost the same."""

from __future__ import annotations

import pytest

from specplan.ir.ops import Forward, Repeat
from specplan.ir.plan import walk, walk_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.passes.pipeline import run_passes
from specplan.passes.unroll import unroll
from tests.ir.plans_on_disk import NAMES, plan_of
from tests.passes.plans import steps, written

CHAIN = """\
round decode {
  %t0 = root
  %f_1 = pick %t0 of=newest
  %q_1 = forward draft %f_1 cache=@dkv pending=2
  %u_1 = uniform 1 stream=draft
  %n_1 = grow %t0 at=%f_1 logits=%q_1 how=draw by=%u_1
  %f_2 = pick %n_1 of=newest
  %q_2 = forward draft %f_2 cache=@dkv
  %u_2 = uniform 1 stream=draft offset=1
  %n_2 = grow %n_1 at=%f_2 logits=%q_2 how=draw by=%u_2
  %l = forward target %n_2 cache=@kv pending=1
  %v = uniform 3 stream=accept
  %a = accept %n_2 target=%l rule=token by=%v
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}
"""


def test_a_drafted_chain() -> None:
    text = (
        print_plan(plan_of("draft_chain"))
        .replace("repeat 4", "repeat 2")
        .replace("uniform 5", "uniform 3")
    )
    unrolled = print_plan(run_passes(parse_plan(text), (unroll,)))
    assert unrolled[unrolled.index("round") :] == CHAIN


@pytest.mark.parametrize("name", NAMES)
def test_the_same_steps_are_run(name: str) -> None:
    plan = plan_of(name)
    unrolled = run_passes(plan, (unroll,))
    for before, after in zip(plan.rounds, unrolled.rounds, strict=True):
        assert steps(plan, before) == steps(unrolled, after)
    left = [op for op in walk_plan(unrolled) if isinstance(op, Repeat)]
    assert all(op.body.until is not None for op in left)
    assert unroll(unrolled) is unrolled


NESTED = """
  %t0 = root
  %p = repeat 2 (%t = %t0) {
    %x = repeat 3 (%s = %t) {
      %f = pick %s of=newest
      %q = forward draft %f cache=@dkv pending=2
      %u = uniform 1 stream=draft
      %n = grow %s at=%f logits=%q how=draw by=%u
      yield %n
    }
    yield %x
  }
  %l = forward target %p cache=@kv pending=1
  %v = uniform 7 stream=accept
  %a = accept %p target=%l rule=token by=%v
  %e = emit %a
  commit @kv %e
  commit @dkv %e"""


def test_loops_in_loops_draw_on() -> None:
    plan = written(NESTED)
    unrolled = run_passes(plan, (unroll,))
    assert steps(plan, plan.rounds[0]) == steps(unrolled, unrolled.rounds[0])
    pending = [op.pending for op in walk(unrolled.rounds[0].ops) if isinstance(op, Forward)]
    assert pending == [2, 0, 0, 0, 0, 0, 1]


def test_a_loop_that_may_stop_stays_and_goes_on_drawing_in_its_copy() -> None:
    """An inner loop that asks after every trip, twice: the second copy draws what was its turn."""
    stopping = NESTED.replace("      yield %n\n", "      yield %n until=%stop\n").replace(
        "      %u = uniform 1 stream=draft\n",
        "      %u = uniform 1 stream=draft\n      %m = measure %q top1\n"
        '      %stop = compute "m < 0.5" m=%m\n',
    )
    plan = written(stopping)
    unrolled = run_passes(plan, (unroll,))
    assert steps(plan, plan.rounds[0]) == steps(unrolled, unrolled.rounds[0])
    assert [op.count for op in walk_plan(unrolled) if isinstance(op, Repeat)] == [3, 3]


def test_plans_without_loops_are_left_alone() -> None:
    plan = plan_of("autoregressive")
    assert unroll(plan) is plan
