"""Static shapes of trees, and the steps of a round with its loops unrolled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir import infer_round
from specplan.ir.ops import Forward, Grow, Uniform
from specplan.ir.types.value_types import (
    ROOT,
    NodesType,
    TreeType,
)
from specplan.ir.values import Value
from tests.ir.inferred import DRAFTED, infer, tree_of
from tests.ir.plans_on_disk import plan_of


def test_a_root_is_a_tree_without_nodes() -> None:
    tree = tree_of("%t0 = root", "t0")
    assert (tree.nodes, tree.depth, tree.parents) == (0, 0, ())
    assert tree.newest == tree.leaves == (ROOT,) and tree.is_chain


SHAPES = {
    "grow_per_node": (
        DRAFTED, "t2", (-1, -1, 0, 0, 1), (0, 1, 0, 1, 0), (1, 1, 2, 2, 2), (2, 3, 4)),
    "grow_none": (DRAFTED + "%x = grow %t2 at=%t2 logits=%q children=0", "x", (-1, -1, 0, 0, 1),
        (0, 1, 0, 1, 0), (1, 1, 2, 2, 2), (2, 3, 4)),
    "heads_look_ahead": (
        DRAFTED + "%f = pick %t2 of=newest nodes=[1]\n%x = grow %t2 at=%f logits=%q children=2",
        "x", (-1, -1, 0, 0, 1, 3, 3), (0, 1, 0, 1, 0, 0, 1), (1, 1, 2, 2, 2, 3, 3), (5, 6)),
    "lookup_chains": ("%t0 = root\n%x = lookup @text %t0 at=%t0 children=2 length=3", "x",
        (-1, 0, 1, -1, 3, 4), (0, 0, 0, 1, 0, 0), (1, 2, 3, 1, 2, 3), (0, 1, 2, 3, 4, 5)),
    "lookup_below_nodes": (DRAFTED + "%f = pick %t1 of=newest\n"
        "%x = lookup @text %t1 at=%f length=2", "x", (-1, -1, 0, 2, 1, 4), (0, 1, 0, 0, 0, 0),
        (1, 1, 2, 3, 2, 3), (2, 3, 4, 5)),
    "place_below_all": (DRAFTED + "%x = place %t1 at=%t1 tokens=[7, 8]", "x",
        (-1, -1, -1, 2, 0, 4, 1, 6), (0, 1, 2, 0, 0, 0, 0, 0), (1, 1, 1, 2, 2, 3, 2, 3),
        (2, 3, 4, 5, 6, 7)),
    "place_up_to": ("%t0 = root\n%x = place %t0 at=%t0 tokens=[0] upto=3", "x", (-1, 0, 1),
        (0, 0, 0), (1, 2, 3), (0, 1, 2)),
    "graft": (DRAFTED + "%y = lookup @text %t0 at=%t0 length=2\n%x = graft %t1 %y %t2", "x",
        (-1, -1, -1, 2, -1, -1, 4, 4, 5), (0, 1, 2, 0, 3, 4, 0, 1, 0),
        (1, 1, 1, 2, 1, 1, 2, 2, 2), None),
    "prune": (DRAFTED + "%f = pick %t2 of=all nodes=[4, 3]\n%x = prune %t2 to=%f", "x",
        (-1, -1, 0, 1), (0, 1, 0, 0), (1, 1, 2, 2), None),
    "prune_to_the_root": (DRAFTED + "%x = prune %t2 to=%t0", "x", (), (), (), None),
    "relabel": (DRAFTED + "%x = relabel %t2 token=3", "x", (-1, -1, 0, 0, 1), (0, 1, 0, 1, 0),
        (1, 1, 2, 2, 2), (0, 1, 2, 3, 4)),
    "load_chain": ("%x = load @chain", "x", (-1, 0, 1), (0, 0, 0), (1, 2, 3), None),
    "load_tree": ("%x = load @tree", "x", (-1, 0, 0, 1), (0, 0, 1, 0), (1, 2, 2, 3), None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name", "parents", "ranks", "depths", "newest"), SHAPES.values(), ids=SHAPES
)
def test_static_shapes(
    body: str, name: str, parents: object, ranks: object, depths: object, newest: object
) -> None:
    tree = tree_of(body, name)
    assert (tree.parents, tree.ranks, tree.depths) == (parents, ranks, depths)
    assert tree.newest == newest and tree.nodes == len(tree.parents or ())
    assert tree.depth == max(tree.depths or (0,))


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4))
def test_levels_grow_as_counted(levels: list[list[int]]) -> None:
    """Levels of child counts against a tree built by hand, parents before children."""
    lines = ["%t0 = root"]
    parents: list[int] = []
    newest, counted = [ROOT], []
    for index, counts in enumerate(levels):
        counts = (counts * len(newest))[: len(newest)]
        if not sum(counts):
            break
        counted.append(counts)
        lines += [
            f"%f{index} = pick %t{index} of=newest",
            f"%q{index} = forward draft %f{index} cache=@dkv pending=2",
            f"%t{index + 1} = grow %t{index} at=%f{index} logits=%q{index} children={counts}",
        ]
        start = len(parents)
        parents += [n for n, count in zip(newest, counts, strict=True) for _ in range(count)]
        newest = list(range(start, len(parents)))
    tree = tree_of("\n".join(lines), f"t{len(counted)}")
    assert tree.parents == tuple(parents)
    assert tree.leaves == (tuple(sorted({*range(len(parents))} - {*parents})) or (ROOT,))
    assert tree.is_chain == (len(set(parents)) == len(parents))


def test_loops_unroll_into_steps() -> None:
    types = infer(
        """%t0 = root
%c = repeat 3 (%t = %t0) {
  %d = repeat 2 (%s = %t) {
    %f = pick %s of=newest
    %q = forward draft %f cache=@dkv pending=2
    %u = uniform 2 stream=d offset=1
    %n = grow %s at=%f logits=%q children=1 how=draw by=%u
    yield %n
  }
  yield %d
}
"""
    )
    drawn = [step for step in types.steps if isinstance(step.op, Uniform)]
    assert [step.trip for step in drawn] == [0, 1, 2, 3, 4, 5]
    assert all(step.trips == 6 for step in drawn)
    assert len(types.steps) == 1 + 6 * 4
    assert [len(step.gives) for step in types.steps].count(1) == 25
    grown = [step.gives[0] for step in types.steps if isinstance(step.op, Grow)]
    assert [tree.nodes for tree in grown if isinstance(tree, TreeType)] == [1, 2, 3, 4, 5, 6]
    final = types.types[Value("c")]
    assert isinstance(final, TreeType) and final.parents == (-1, 0, 1, 2, 3, 4)
    assert final.newest == (5,) and not final.ragged


def test_steps_know_what_they_read_and_where_they_stand() -> None:
    plan = plan_of("predictive_pipeline")
    forwards = [s for s in infer_round(plan, plan.rounds[0]).steps if isinstance(s.op, Forward)]
    assert [(s.conditional, s.lane) for s in forwards] == [
        (True, None), (False, None), (False, "a"), (False, "b"),
    ]  # fmt: skip
    assert [len(s.gives) for s in forwards] == [0, 1, 1, 0]
    assert all(isinstance(s.reads[s.op.nodes[0]], TreeType | NodesType) for s in forwards)  # type: ignore[union-attr]


def test_a_loop_of_no_trips_gives_what_it_was_given() -> None:
    tree = tree_of("%t0 = root\n%c = repeat 0 (%t = %t0) {\n  yield %t\n}", "c")
    assert tree.nodes == 0


def test_a_loop_that_may_stop_early_leaves_ragged_trees() -> None:
    plan = plan_of("skipped_layers")
    tree = infer_round(plan, plan.rounds[0]).types[Value("c")]
    assert isinstance(tree, TreeType)
    assert tree.ragged and tree.newest is None and tree.nodes == 6 and tree.is_chain


def test_what_data_decides_has_no_static_shape() -> None:
    plan = plan_of("expand_rerank")
    types = infer_round(plan, plan.rounds[0]).types
    pool, pruned = types[Value("pool")], types[Value("c")]
    assert isinstance(pool, TreeType) and isinstance(pruned, TreeType)
    assert (pool.nodes, pool.depth, pool.parents) == (510, 6, None), "10 + 5 * 10 * 10"
    assert (pruned.nodes, pruned.depth, pruned.parents) == (59, 6, None)
    assert pool.ranks is pool.depths is pool.leaves is None
    plan = plan_of("growing_tree")
    beam = infer_round(plan, plan.rounds[0]).types[Value("pool")]
    assert isinstance(beam, TreeType) and (beam.nodes, beam.depth) == (8 * 16, 8)


def test_a_bounded_tree_is_no_chain() -> None:
    """One node a level at most, but the second may be a child of the root as well."""
    body = DRAFTED + "%x = grow %t0 at=%t0 logits=%q children=3 keep=1\n"
    assert tree_of(body, "x").nodes == 1
    body += "%q2 = forward draft %x cache=@dkv\n%y = grow %x at=%x logits=%q2 keep=1"
    tree = tree_of(body, "y")
    assert (tree.nodes, tree.depth) == (2, 2) and not tree.is_chain


def test_lookups_at_the_tip_of_a_chain_are_chains() -> None:
    plan = plan_of("staged")
    tree = infer_round(plan, plan.rounds[0]).types[Value("c")]
    assert isinstance(tree, TreeType)
    assert (tree.nodes, tree.depth, tree.is_chain) == (8, 8, True), "twice 3 and a bonus"
