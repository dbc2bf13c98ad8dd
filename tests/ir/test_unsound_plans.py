"""Plans whose output would not have the target's law, though each op of theirs is sound."""

from __future__ import annotations

import pytest

from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from tests.ir import layered_plans

HEAD = "plan unsound\nmodel target\nmodel draft\nassume temperature=0.0..1.0\n"
HEAD += "state @kv = cache target\n"
DRAFT = "state @dkv = cache draft\n"
BEGUN = "  %t = root\n  %t2 = root\n  %q = forward draft %t cache=@dkv pending=5\n"
DRAWN = BEGUN + "  %u = uniform 1 stream=d\n  %d = grow %t at=%t logits=%q how=draw by=%u\n"
NUMBER = '  %n = measure %{} uniform\n  %fl = compute "n < 0.3" n=%n\n'
END = """  %l = forward target %c cache=@kv pending=1
{uniform}  %a = accept %c target=%l rule={rule} by=%v
  %e = emit %a
  commit @kv %e
{more}"""
OWN = "  %v = uniform 9 stream=accept\n"


def written(
    states: str, body: str, more: str = "", uniform: str = OWN, rule: str = "recursive"
) -> str:
    drafts = "  commit @dkv %e\n" if "@dkv" in states else ""
    end = END.format(uniform=uniform, rule=rule, more=drafts + more)
    return f"{HEAD}{states}round r {{\n{body}{end}}}\n"


OTHER = "  %w = uniform 1 stream=d2\n  %h = grow %t at=%t logits=%q how=draw by=%w\n"
STORED = "state @x = value tree(nodes=1, depth=1, how=draw)\n" + DRAFT
BY_PLACE = """  %t = root
  %q = forward draft %t cache=@dkv pending=5
  %u = uniform 6 stream=s key=position{}
  %c = grow %t at=%t logits=%q how=shared by=%u
"""
STAGES = """  %t0 = root
  %z = uniform 4 stream=z
  %c = repeat 2 (%t = %t0) {
    %tip = pick %t of=leaves
    %g = repeat 1 (%s = %t) {
      %f = pick %s of=leaves
      %q = forward draft %f cache=@dkv pending=2
      %u = uniform 1 stream=d
      %h = grow %s at=%f logits=%q how=draw by=%u
      yield %h
    }
    %last = pick %g of=leaves
    forward draft %last cache=@dkv gives=[]
    %n = pick %g of=from at=%tip
    %m = forward draft %n cache=@d2 pending=4
    %i = accept %g target=%m at=%tip rule=gumbel by=%z
    %o = adopt %g %i logits=%m
    yield %o
  }
"""
TWICE = """  %t = root
  %x = lookup @text %t at=%t match=[1, 3] children=3 length=1
  %f = pick %x of=all best=1
  %q = forward draft %x cache=@dkv pending=5
  %u = uniform 2 stream=d
  %g = grow %x at=%f logits=%q children=2 how=draw_distinct by=%u
  %w = uniform 2 stream=d2
  {}%c = grow %g at=%{} logits=%{} children=2 how=draw_distinct by=%w
"""
BROKEN = {
    "nodes that data chooses draw children twice": (
        "law", written(DRAFT, TWICE.format("", "f", "q"))
    ),
    "one number serves several stages": (
        "stream",
        written(DRAFT + "state @d2 = cache draft\n", STAGES, "  commit @d2 %e\n"),
    ),
    "constants fill up a drawn chain": (
        "lossless",
        written(
            "state @x = value tree(nodes=2, depth=2, how=draw)\n" + DRAFT,
            "  %w = load @x\n  %tip = pick %w of=leaves\n"
            "  %c = place %w at=%tip tokens=[3] upto=2\n" + DRAWN,
            "  %r = reroot %d %e nodes=1\n  store @x %r\n",
        ),
    ),
    "a number is told before it judges": (
        "stream",
        written(
            "",
            "  %t = root\n" + OWN + NUMBER.format("v") + "  %x = place %t at=%t tokens=[3]\n"
            "  %y = place %t at=%t tokens=[5]\n  %c = when %fl otherwise=[%y] {\n"
            "    yield %x\n  }\n",
            uniform="",
        ),
    ),
    "a number is told before it draws": (
        "stream",
        written(
            DRAFT,
            BEGUN + "  %u = uniform 1 stream=d\n" + NUMBER.format("u")
            + "  %c = grow %t at=%t logits=%q how=draw by=%u\n",
        ),
    ),
    "a copy of a drawn node is judged before it": (
        "lossless",
        written(
            DRAFT,
            DRAWN + "  %p = place %t2 at=%t2 tokens=[0]\n  %g = relabel %p other=%d\n"
            "  %c = graft %g %d\n",
        ),
    ),
    "a source has learned drawn nodes and is asked": (
        "lossless",
        written(
            DRAFT + "state @s = source phrases(order=2, width=1, capacity=1)\n",
            DRAWN + "  update @s %d last=2\n"
            "  %g = lookup @s %t2 at=%t2 match=[1, 1] children=1 length=1\n  %c = graft %g %d\n",
        ),
    ),
    "a flag tells of drawn nodes": (
        "lossless",
        written(
            DRAFT,
            DRAWN + "  %f = pick %d of=newest\n  %q1 = forward draft %f cache=@dkv pending=1\n"
            '  %n = measure %q1 entropy\n  %fl = compute "n < 2.0" n=%n\n'
            "  %x = place %t2 at=%t2 tokens=[14]\n  %y = place %t2 at=%t2 tokens=[5]\n"
            "  %g = when %fl otherwise=[%y] {\n    yield %x\n  }\n  %c = graft %g %d\n",
        ),
    ),
    "one of two draws is chosen and kept": (
        "lossless",
        written(
            STORED,
            "  %c = load @x\n" + DRAWN
            + OTHER + NUMBER.format("u") + "  %s = when %fl otherwise=[%h] {\n    yield %d\n  }\n",
            "  store @x %s\n",
        ),
    ),
    "drawn nodes are judged and kept": (
        "lossless",
        written(STORED, "  %o = load @x\n" + DRAWN + "  %c = graft %o %d\n", "  store @x %d\n"),
    ),
    "a copy of kept nodes is judged": (
        "lossless",
        written(
            STORED,
            DRAWN + "  %p = place %t2 at=%t2 tokens=[0]\n  %c = relabel %p other=%d\n",
            "  store @x %d\n",
            rule="deterministic",
        ),
    ),
    "what is left of nodes that were copied": (
        "lossless",
        written(
            STORED,
            DRAWN + "  %p = place %t2 at=%t2 tokens=[0]\n  %c = relabel %p other=%d\n",
            "  %r = reroot %d %e nodes=1\n  store @x %r\n",
            rule="deterministic",
        ),
    ),
    "races with one number are siblings": (
        "lossless",
        written(
            DRAFT,
            BEGUN + "  %u = uniform 1 stream=d\n"
            "  %q2 = forward draft %t2 cache=@dkv pending=5\n"
            "  %x = grow %t at=%t logits=%q how=shared by=%u\n"
            "  %y = grow %t2 at=%t2 logits=%q2 how=shared by=%u\n  %c = graft %x %y\n",
        ),
    ),
    "nodes that fill up a chain are judged by rows of what was there": (
        "lineage",
        written(
            "state @x = value tree(nodes=2, depth=2)\n",
            "  %w = load @x\n  %m = forward target %w cache=@kv pending=1\n"
            "  %tip = pick %w of=leaves\n  %c = place %w at=%tip tokens=[6] upto=2\n",
            "  store @x %w\n",
        ).replace("  %l = forward target %c cache=@kv pending=1\n", "").replace("=%l", "=%m"),
    ),
    "numbers by position begin elsewhere": (
        "stream",
        written(DRAFT, BY_PLACE.format(" offset=1"), uniform="", rule="gumbel").replace(
            "by=%v", "by=%u"
        ),
    ),
}  # fmt: skip
SOUND = {
    "children of nodes that data chooses draw some": written(
        DRAFT,
        TWICE.format(
            "%f2 = pick %g of=newest best=1\n  %q2 = forward draft %f2 cache=@dkv\n  ", "f2", "q2"
        ),
    ),
    "drawn nodes are kept for the next round": written(
        STORED, "  %c = load @x\n" + DRAWN, "  store @x %d\n"
    ),
    "what is left of drawn nodes is kept": written(
        STORED, "  %c = load @x\n" + DRAWN, "  %r = reroot %d %e nodes=1\n  store @x %r\n"
    ),
    "numbers by position begin at the root": written(
        DRAFT, BY_PLACE.format(""), uniform="", rule="gumbel"
    ).replace("by=%v", "by=%u"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_they_are_refused_by_a_rule(name: str) -> None:
    rule, text = BROKEN[name]
    assert rule in {finding.rule for finding in verify_plan(parse_plan(text))}


@pytest.mark.parametrize("name", SOUND)
def test_their_sound_likes_are_not(name: str) -> None:
    assert not verify_plan(parse_plan(SOUND[name]))


@pytest.mark.parametrize("name", layered_plans.BROKEN)
def test_rounds_leave_no_layer_out_that_another_reads(name: str) -> None:
    rule, what, text = layered_plans.BROKEN[name]
    assert (rule, what) in {
        (finding.rule, finding.what) for finding in verify_plan(parse_plan(text))
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("phrases(order=3", "phrases(order=0"),
        ("phrases(order=3", "phrases(capacity=-1, order=3"),
        ("phrases(order=3)", "ngram(capacity=-5)"),
        ("phrases(order=3)", "trie(capacity=-1)"),
        ("phrases(order=3)", "adjacency(width=0)"),
        ("value(best=2)", "value(best=-1)"),
    ],
)
def test_parameters_out_of_range_are_refused(old: str, new: str) -> None:
    body = "  %t = root\n  %c = lookup @text %t at=%t length=2\n  %n = measure %c value(best=2)\n"
    text = written("state @s = source phrases(order=3)\n", body)
    assert not verify_plan(parse_plan(text))
    findings = verify_plan(parse_plan(text.replace(old, new)))
    assert findings and "is not within" in str(findings[0])


def test_children_drawn_apart_do_not_stand_beside_stored_ones() -> None:
    """One rule judges siblings as drawn with replacement or without, not as both."""
    first = DRAWN.replace("uniform 1", "uniform 3").replace("how=draw", "children=3 how=draw")
    second = first.replace("how=draw ", "how=draw_distinct ").replace("uniform 3", "uniform 2")
    second = second.replace("children=3", "children=2")
    state = "state @x = value tree(nodes=3, depth=1, parents=[-1, -1, -1], how=draw)\n"
    own = second + "  %o = load @x\n  %c = graft %o %d\n"
    plan = parse_plan(written(state + DRAFT, own))
    assert ["with replacement at some nodes" in str(one) for one in verify_plan(plan)] == [True]
