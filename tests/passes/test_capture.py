"""Units that run without the host are marked: all of a round, or what lies between two visits."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.ir.ops import Segment
from specplan.ir.parser import parse_plan
from specplan.ir.plan import walk
from specplan.ir.printer import print_plan
from specplan.passes.capture import capture
from specplan.passes.pipeline import run_passes
from tests.passes.plans import PATHS, read, steps, written

VERIFY = """
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e"""


def captured(body: str, head: str = "") -> str:
    """A round as it is printed after the pass."""
    found = print_plan(run_passes(written(body, head=head), (capture,)))
    return found[found.index("round decode") :]


def test_a_round_without_the_host_is_one_unit() -> None:
    """What follows the text is looked up before the round begins."""
    lookup = "\n  %t0 = root\n  %c = lookup @text %t0 at=%t0 match=[1, 3] length=4"
    assert captured(lookup + VERIFY) == (
        "round decode {\n"
        "  segment capture=true {\n"
        "    %t0 = root\n"
        "    %c = lookup @text %t0 at=%t0 match=[1, 3] length=4\n"
        "    %l = forward target %c cache=@kv pending=1\n"
        "    %a = accept %c target=%l\n"
        "    %e = emit %a\n"
        "    commit @kv %e\n"
        "  }\n"
        "}\n"
    )


def test_what_follows_drafted_tokens_is_looked_up_between_two_units() -> None:
    drafted = """
  %t0 = root
  %q = forward draft %t0 cache=@dkv pending=6
  %t1 = grow %t0 at=%t0 rows=%q
  %f = pick %t1 of=newest
  %c = lookup @text %t1 at=%f match=[1, 3] length=4"""
    assert captured(drafted + VERIFY + "\n  commit @dkv %e") == (
        "round decode {\n"
        "  %t1, %f = segment capture=true {\n"
        "    %t0 = root\n"
        "    %q = forward draft %t0 cache=@dkv pending=6\n"
        "    %t1_1 = grow %t0 at=%t0 rows=%q\n"
        "    %f_1 = pick %t1_1 of=newest\n"
        "    yield %t1_1, %f_1\n"
        "  }\n"
        "  %c = lookup @text %t1 at=%f match=[1, 3] length=4\n"
        "  segment capture=true {\n"
        "    %l = forward target %c cache=@kv pending=1\n"
        "    %a = accept %c target=%l\n"
        "    %e = emit %a\n"
        "    commit @kv %e\n"
        "    commit @dkv %e\n"
        "  }\n"
        "}\n"
    )


@pytest.mark.parametrize("place", ["", " at=device"])
def test_sources_are_where_they_are_declared_to_be(place: str) -> None:
    body = "\n  %t0 = root\n  %c = lookup @past %t0 at=%t0 length=4" + VERIFY
    found = captured(
        body + "\n  update @past %c rows=%l", f"state @past = source ngram(order=3){place}"
    )
    inside = [line.strip() for line in found.splitlines() if line.startswith("    ")]
    assert any("update" in line for line in inside) == bool(place)
    assert any("lookup" in line for line in inside) == bool(place)


LOOP = """
  %t0 = root
  %c = repeat 3 (%t = %t0) CONTROL{
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f rows=%q
    %m = measure %q top1
    %s = compute "m < 0.5" m=%m
    yield %n until=%s
  }"""


def test_a_loop_that_may_stop_asks_after_every_trip() -> None:
    found = captured(LOOP.replace("CONTROL", "") + VERIFY + "\n  commit @dkv %e")
    assert found.startswith(
        "round decode {\n"
        "  %t0 = root\n"
        "  %c = repeat 3 (%t = %t0) {\n"
        "    %n, %s = segment capture=true {\n"
    )
    assert found.count("capture=true") == 2
    masked = captured(LOOP.replace("CONTROL", "control=masked ") + VERIFY + "\n  commit @dkv %e")
    assert masked.count("capture=true") == 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_same_steps_are_run(path: Path) -> None:
    plan = parse_plan(path.read_text())
    marked = run_passes(plan, (capture,))
    for before, after in zip(plan.rounds, marked.rounds, strict=True):
        assert steps(plan, before) == steps(marked, after)
    assert capture(marked) is marked


def test_a_lowered_round_is_one_unit() -> None:
    (op,) = run_passes(read("draft_chain")).rounds[0].ops
    assert isinstance(op, Segment) and op.capture
    assert [inner.fuse for inner in walk(op.body.ops) if isinstance(inner, Segment)] == [True]
