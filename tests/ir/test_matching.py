"""Rounds specialised for what their lookups match: which are, and what they become."""

from __future__ import annotations

import pytest

from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.matching import NO_MATCH, deciding_lookups, outcomes_of, specialized
from specplan.passes.pipeline import run_passes
from tests.plan_texts import BEHIND, GREEDY, TWO_LENGTHS, drafted, judged

HEAD = "assume temperature=0.0..1.0\n"
COPY = "  %t0 = root\n  %c = lookup @text %t0 at=%t0 match=[1, 3] length=8"
TWICE = """  %t0 = root
  %n = lookup @text %t0 at=%t0 length=2
  %f = pick %n of=newest
  %c = lookup @text %n at=%f length=2"""


@pytest.mark.parametrize("rule", ["token", "recursive"])
@pytest.mark.parametrize("length", [8, 5])
def test_it_is_plain_decoding(rule: str, length: int) -> None:
    """By the number that draws the bonus token in the whole round, which may draw more of them."""
    copy = COPY.replace("length=8", f"length={length}")
    text = drafted(copy, draft=False, judge=judged(rule, 8), head=HEAD)
    plan = run_passes(parse_plan(text))
    alone = judged(rule, 0).replace("stream=accept", f"stream=accept offset={length}")
    plain = drafted("  %t0 = root", draft=False, judge=alone, head=HEAD).replace("%c", "%t0")
    bare = specialized(plan, "decode", NO_MATCH)
    assert bare is not None and verify_plan(bare) == ()
    assert run_passes(bare) == run_passes(parse_plan(plain))
    assert specialized(plan, "decode", 0) is None, "it is the round itself"


def test_a_condition_on_the_match_is_decided() -> None:
    plan = run_passes(parse_plan(drafted(BEHIND)))
    copied = """  %t0 = root
  %c = lookup @text %t0 at=%t0 match=[2, 4] length=4
  forward draft %t0 cache=@dkv pending=5 gives=[]"""
    chain = """  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=5
  %c = grow %t0 at=%t0 logits=%q0"""
    for outcome, alone in ((0, copied), (NO_MATCH, chain)):
        form = specialized(plan, "decode", outcome)
        assert form is not None and verify_plan(form) == ()
        assert run_passes(form) == run_passes(parse_plan(drafted(alone)))


def test_copies_of_two_lengths_have_a_form_for_each() -> None:
    """The first lookup that has a match decides, whatever later ones have."""
    plan = run_passes(parse_plan(drafted(TWO_LENGTHS, draft=False)))
    assert outcomes_of(plan.round("decode")) == (0, 1, NO_MATCH)
    _, longer, shorter, *_ = TWO_LENGTHS.splitlines()
    for outcome, name, copied in ((0, "%long", longer), (1, "%brief", shorter), (NO_MATCH, "", "")):
        alone = f"  %t0 = root\n{copied.replace(name, '%c')}" if name else "  %c = root"
        form = specialized(plan, "decode", outcome)
        assert form is not None and verify_plan(form) == ()
        assert run_passes(form) == run_passes(parse_plan(drafted(alone, draft=False)))


def test_what_a_match_does_not_decide_stays() -> None:
    """Three tokens may be proposed, or one."""
    plan = run_passes(parse_plan(drafted(BEHIND.replace("k < 1", "k < 3"))))
    assert specialized(plan, "decode", 0) is None
    unmatched = specialized(plan, "decode", NO_MATCH)
    assert unmatched is not None and not any(op.body for op in unmatched.rounds[0].ops)


def test_a_form_draws_the_numbers_of_the_round() -> None:
    """A chain of one node is judged by the first and the last of five numbers: no op draws two."""
    plan = run_passes(parse_plan(drafted(BEHIND, judge=judged("token", 4), head=HEAD)))
    assert specialized(plan, "decode", NO_MATCH) is None
    assert specialized(plan, "decode", 0) is not None


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
    assert bool(deciding_lookups(plan.round("decode"))) == some
