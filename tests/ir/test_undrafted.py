"""Rounds for when a lookup proposes nothing: which rounds have one, and what it is."""

from __future__ import annotations

import pytest

from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.undrafted import proposing, undrafted
from specplan.passes.pipeline import run_passes
from tests.plan_texts import GREEDY, drafted, judged

HEAD = "assume temperature=0.0..1.0\n"
COPY = "  %t0 = root\n  %c = lookup @text %t0 at=%t0 match=[1, 3] length=8"
TWICE = """  %t0 = root
  %n = lookup @text %t0 at=%t0 length=2
  %f = pick %n of=newest
  %c = lookup @text %n at=%f length=2"""


@pytest.mark.parametrize("rule", ["token", "recursive"])
def test_it_is_plain_decoding(rule: str) -> None:
    """By the number that draws the bonus token in the whole round."""
    text = drafted(COPY, draft=False, judge=judged(rule, 8), head=HEAD)
    plan = run_passes(parse_plan(text))
    alone = judged(rule, 0).replace("stream=accept", "stream=accept offset=8")
    plain = drafted("  %t0 = root", draft=False, judge=alone, head=HEAD).replace("%c", "%t0")
    bare = undrafted(plan, "decode")
    assert verify_plan(bare) == ()
    assert run_passes(bare) == run_passes(parse_plan(plain))


@pytest.mark.parametrize(
    ("body", "judge", "some"),
    [
        (COPY, GREEDY, True),
        (COPY.replace("length", "children=2 length"), GREEDY, True),
        (COPY, judged("gumbel", 8), False),
        (TWICE, GREEDY, False),
        ("  %t0 = root\n  %q = forward target %t0 cache=@kv pending=1\n"
         "  %c = grow %t0 at=%t0 logits=%q", GREEDY, False),
    ],
)  # fmt: skip
def test_which_rounds_have_one(body: str, judge: str, some: bool) -> None:
    head = "" if judge == GREEDY else HEAD
    plan = run_passes(parse_plan(drafted(body, draft=False, judge=judge, head=head)))
    assert (proposing(plan.round("decode")) is not None) == some
