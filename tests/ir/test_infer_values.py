"""Picks, rows, paths, lineage, branches: what is known of them before anything runs."""

from __future__ import annotations

import pytest

from specplan.ir import infer_round, parse_ops, parse_plan
from specplan.ir.plan import Plan, Round
from specplan.ir.types.infer import InferenceError
from specplan.ir.types.value_types import (
    FlagType,
    LogitsType,
    NumberType,
    PathType,
    TreeType,
    UniformsType,
)
from specplan.ir.values import Value
from tests.ir.inferred import DRAFTED, HEAD, infer, kind_of, nodes_of, refusal, tree_of


def test_picks_are_static_where_trees_are() -> None:
    assert nodes_of(DRAFTED + "%f = pick %t2 of=leaves", "f").indices == (2, 3, 4)
    assert nodes_of(DRAFTED + "%f = pick %t2 of=all", "f").indices == (0, 1, 2, 3, 4)
    picked = DRAFTED + "%g = pick %t1 of=newest nodes=[0]\n"
    assert nodes_of(picked + "%f = pick %t2 of=from at=%g", "f").indices == (0, 2, 3)
    assert nodes_of(picked + "%f = pick %t2 of=newest best=2", "f").indices is None
    assert nodes_of(picked + "%f = pick %t2 of=newest best=2", "f").among == (2, 3, 4)
    for best in (3, 4):
        whole = nodes_of(picked + f"%f = pick %t2 of=newest best={best}", "f")
        assert (whole.indices, whole.width) == ((2, 3, 4), 3), "as many as there are"
    ragged = "%t0 = root\n%x = lookup @text %t0 at=%t0 length=3\n"
    assert nodes_of(ragged + "%f = pick %x of=leaves", "f") != nodes_of(
        ragged + "%f = pick %x of=newest", "f"
    )
    assert nodes_of(ragged + "%f = pick %x of=leaves", "f").indices is None
    placed = DRAFTED + "%x = place %t1 at=%t0 tokens=[9, 9]\n%f = pick %x of=newest"
    assert nodes_of(placed, "f").indices == (2, 3)


def test_new_nodes_are_known_by_number_where_their_parents_are_not() -> None:
    body = DRAFTED + "%f = pick %t2 of=newest best=2\n%q2 = forward draft %f cache=@dkv\n"
    body += "%t3 = grow %t2 at=%f logits=%q2 children=3\n"
    grown = tree_of(body, "t3")
    assert (grown.parents, grown.newest, grown.newest_count) == (None, tuple(range(5, 11)), 6)
    assert nodes_of(body + "%g = pick %t3 of=newest best=4", "g").among == grown.newest
    limited = body.replace("logits=%q2 children=3\n", "logits=%q2 children=3 keep=4\n")
    assert tree_of(limited, "t3").newest is None


def test_the_best_of_all_are_pruned_to_as_many() -> None:
    body = DRAFTED + "%f = pick %t2 of=all best={}\n%c = prune %t2 to=%f\n"
    cut, whole = tree_of(body.format(3), "c"), tree_of(body.format(9), "c")
    assert (cut.nodes, cut.depth, cut.parents, cut.is_chain) == (3, 2, None, False)
    assert (whole.nodes, whole.parents) == (5, (-1, -1, 0, 0, 1))


def test_rows_are_exact_where_the_whole_stack_ran_on_the_whole_cache() -> None:
    def exact(forward: str) -> bool:
        lower = "forward target %t0 cache=@kv pending=1 layers=[0:8] keep=@low gives=[]\n"
        upper = "%up = forward target %t0 cache=@kv pending=1 layers=[8:32] features=@low\n"
        logits = kind_of(f"%t0 = root\n{lower}{upper}%l = forward target %t0 {forward}", "l")
        assert isinstance(logits, LogitsType)
        return logits.exact

    assert exact("cache=@kv pending=1")
    assert exact("cache=@kv pending=1 layers=[0:32]")
    assert exact("cache=@kv pending=1 layers=[8:32] features=@low")
    assert not exact("pending=1"), "no cache"
    assert not exact("cache=@kv pending=1 write=scratch")
    assert not exact("cache=@view pending=1 write=scratch")
    assert not exact("cache=@kv pending=1 layers=[8:32]"), "nothing from below"
    assert not exact("cache=@kv pending=1 layers=[9:32] features=@low"), "layer 8 goes in at 9"
    assert not exact("cache=@kv pending=1 layers=[8:16] features=@low"), "not the end"
    assert not exact("cache=@kv pending=1 layers=[0:2, 18:32]")
    assert not exact("cache=@kv pending=1 features=@low")
    assert not exact("cache=@kv pending=1 skip=[mlp.3]")
    assert not exact("cache=@kv pending=1 attend=block")


def test_types_of_the_other_values() -> None:
    body = (
        DRAFTED
        + """%l = forward target %t2 cache=@kv pending=1
%a = accept %t2 target=%l
%n = measure %l top1
%m = compute "n + 1" n=%n
%f = compute "n < m" n=%n m=%m
%u = uniform 4 stream=s
%w = load @drawn
"""
    )
    types = infer(body).types
    assert isinstance(types[Value("n")], NumberType) and isinstance(types[Value("m")], NumberType)
    assert isinstance(types[Value("f")], FlagType)
    assert types[Value("u")] == UniformsType(4)
    path, rows, drawn = types[Value("a")], types[Value("l")], types[Value("w")]
    assert isinstance(path, PathType) and (path.depth, path.nodes, path.exact) == (2, 5, True)
    assert isinstance(rows, LogitsType) and (rows.width, rows.indices) == (6, (-1, 0, 1, 2, 3, 4))
    assert isinstance(drawn, TreeType) and drawn.drawn


def test_lineage_follows_trees_that_extend_one_another() -> None:
    tail = "%l = forward target %t2 cache=@kv pending=1\n%a = accept "
    assert isinstance(kind_of(DRAFTED + tail + "%t1 target=%l", "a"), PathType), "rows of more"
    sibling = "%z = grow %t0 at=%t0 logits=%q children=2\n"
    assert refusal(DRAFTED + sibling + tail + "%z target=%l") == "lineage"
    assert refusal(DRAFTED + "%z = relabel %t2 token=1\n" + tail + "%z target=%l") == "lineage"
    assert refusal(DRAFTED + "%z = prune %t2 to=%t1\n" + tail + "%z target=%l") == "lineage"
    assert refusal(DRAFTED + "%f = pick %t2 of=leaves\n%z = prune %t1 to=%f") == "lineage"


def test_branches_join_into_what_holds_both() -> None:
    body = DRAFTED + '%n = measure %q top1\n%g = compute "n < 1" n=%n\n'
    body += "%x = when %g otherwise=[%t1] {\n  yield %t2\n}\n"
    joined = tree_of(body, "x")
    assert (joined.nodes, joined.depth, joined.parents, joined.ragged) == (5, 2, None, True)
    assert isinstance(kind_of(body + "%z = grow %x at=%t1 logits=%q1 children=1", "z"), TreeType)
    assert refusal(body + "%z = grow %x at=%t2 logits=%q1 children=1") == "lineage"
    assert refusal(body + "%y = when %g otherwise=[%n] {\n  yield %t2\n}") == "type"


def test_unverified_plans_are_refused_too() -> None:
    bad = parse_plan(HEAD.replace("nodes=3, depth=3", "nodes=3, depth=9"))
    with pytest.raises(InferenceError, match=r"\[state\]"):
        infer_round(bad, Round(name="r", ops=parse_ops("%x = load @chain")))
    empty = Plan(name="p")
    with pytest.raises(InferenceError, match=r"\[state\] @a is not a value state"):
        infer_round(empty, Round(name="r", ops=parse_ops("%x = load @a")))
    assert refusal("%x = pick %y of=all") == "ssa"
