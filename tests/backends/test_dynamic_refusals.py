"""Trees that differ by request in ways that do not run here are refused by name, and why."""

from __future__ import annotations

import pytest

from specplan.backends.reference.capabilities import CAPABILITIES
from specplan.backends.reference.shapes import shape_refusals
from specplan.ir.capabilities import refusals
from specplan.ir.parser import parse_plan
from specplan.ir.verify import verify_plan
from tests.backends.dynamic_trees import dynamic_text

TEXT = dynamic_text(3, 3, 7)
SMALL = "state @dkv = cache draft\n"
REASONS = {
    "choices that may have run": (
        {"pick %t of=newest best=3": "pick %t of=all best=3"},
        "`%q = forward draft %f cache=@dkv`: node 0 has run in this round already"),
    "one choice twice": (
        {"    %n = grow": "    %r = forward draft %f cache=@dkv\n    %n = grow"},
        "`%r = forward draft %f cache=@dkv`: node 0 has run in this round already"),
    "rows of another choice": (
        {"    %n = grow %t at=%f": "    %g = pick %t of=newest best=2\n    %n = grow %t at=%g"},
        "its nodes are not known before it runs"),
    "drawn below choices": (
        {"    %n = grow %t at=%f logits=%q children=3":
         "    %u = uniform 9 stream=x\n    %n = grow %t at=%f logits=%q children=3 how=draw by=%u"},
        "children of nodes that scores choose are ranked, not drawn"),
    "choices among drawn nodes": (
        {"  %t1 = grow %t0 at=%t0 logits=%q0 children=3":
         "  %u = uniform 3 stream=x\n  %t1 = grow %t0 at=%t0 logits=%q0 children=3 how=draw by=%u",
         "best=3": "best=2"},
        "only ranked nodes are chosen by their scores"),
    "a choice without its ancestors": (
        {"pick %pool of=all best=7": "pick %pool of=newest best=7"},
        "how many ancestors they have is not known before it runs; pick of=all best="),
    "growth after pruning": (
        {"  %a = accept %c": "  %d = grow %c at=%c logits=%l\n  %a = accept %c"},
        "a tree that was pruned does not grow"),
    "part of a pruned tree": (
        {"  %l = forward target %c cache=@kv pending=1": "  %l = forward target %c cache=@kv "
         "pending=1\n  %x = pick %c of=all best=2\n  forward draft %x cache=@dkv gives=[]"},
        "@dkv may have run some of its nodes before they were pruned"),
    "part of a pruned tree, alone": (
        {"  %l = forward target %c cache=@kv pending=1": "  %x = pick %c of=all best=2\n"
         "  %l = forward target %x cache=@kv pending=1"},
        "a tree that was pruned runs as a whole"),
    "the pool after pruning": (
        {"  %a = accept %c": "  %d = pick %pool of=newest\n  forward draft %d cache=@dkv gives=[]\n"
         "  %a = accept %c"},
        "@dkv may have run some of its nodes before they were pruned"),
    "parents that another cache ran": (
        {SMALL: SMALL + "state @skv = cache draft\n",
         "  %b = pick": "  %s = pick %pool of=newest best=2\n"
         "  forward draft %s cache=@skv pending=2 gives=[]\n  %b = pick",
         "  commit @dkv %e": "  commit @dkv %e\n  commit @skv %e"},
        "whether the parent of node 12 has run is not known before it runs"),
    "some layers of choices": (
        {"    %q = forward draft %f cache=@dkv":
         "    forward draft %f cache=@dkv layers=[0:1] gives=[]\n"
         "    %q = forward draft %f cache=@dkv"},
        "nodes that scores choose run through the whole stack, and leave no states"),
}  # fmt: skip


def edited(edits: dict[str, str]) -> str:
    """The plan with some of its text replaced."""
    text = TEXT
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(("edits", "reason"), REASONS.values(), ids=REASONS)
def test_what_does_not_run_is_named(edits: dict[str, str], reason: str) -> None:
    plan = parse_plan(edited(edits))
    assert reason in "\n".join(map(str, shape_refusals(plan)))


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"best=7": "worst=7"}, "worst may only be unset"),
        ({"best=7": "best=7 by=own"}, "by may only be path"),
        ({"logits=%q children=3": "logits=%q children=3 keep=4"}, "keep may only be unset"),
    ],
)
def test_fields_that_do_not_run_are_named(edits: dict[str, str], reason: str) -> None:
    found = refusals(parse_plan(edited(edits)), CAPABILITIES)
    assert any(reason in str(item) for item in found)


def test_nodes_looked_up_below_others_have_no_scores() -> None:
    start, end = TEXT.index("  %q0"), TEXT.index("  %b = pick")
    text = (
        f"{TEXT[:start]}  %t1 = lookup @text %t0 at=%t0 length=3\n  %tip = pick %t1 of=newest "
        f"nodes=[2]\n  %pool = lookup @text %t1 at=%tip length=6\n{TEXT[end:]}"
    )
    pick, prune = list(shape_refusals(parse_plan(text.replace("  commit @dkv %e\n", ""))))
    assert pick.reason == "only ranked nodes are chosen by their scores"
    assert prune.reason == "only trees of ranked nodes are pruned"


def test_the_plan_itself_runs() -> None:
    plan = parse_plan(TEXT)
    assert not verify_plan(plan) and not refusals(plan, CAPABILITIES)
