"""`pick` by score and `prune`, against what they say put plainly, one request at a time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from specplan.backends.ops.pick import best_columns, pick
from specplan.backends.ops.prune import prune
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.trees import rehung, summed
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.ir.ops import Pick, Prune
from specplan.ir.types.value_types import NodesType, TreeType
from specplan.ir.values import Value

seeds = st.integers(0, 2**32 - 1)


def random_tree(chance: Random) -> Tree:
    """A tree of up to 12 nodes for up to 3 requests: siblings differ, many scores do not."""
    batch, size = chance.randint(1, 3), chance.randint(1, 12)

    def drawn(one: object) -> torch.Tensor:
        return torch.tensor([[one(node) for node in range(1 + size)] for _ in range(batch)])  # type: ignore[operator]

    first = first_tree(torch.ones(batch, 1).long(), torch.arange(1, batch + 1)[:, None], None)
    tree = replace(
        first,
        tokens=drawn(lambda node: node),
        parents=drawn(lambda node: chance.randrange(max(node, 1))),
        depths=torch.zeros(batch, 1 + size, dtype=torch.int64),
        live=drawn(lambda node: node == 0 or chance.random() < 0.8),
        keys=first.keys.expand(-1, 1 + size),
        probs_row=torch.full((batch, 1 + size), -1),
        levels=size,
        newest=range(1, 1 + size),
        chain=False,
        layered=False,
        in_order=False,
    )
    own = drawn(lambda node: -chance.choice((0.0, 0.5, 1.0)) if node else 0.0)
    tree = rehung(tree)
    return replace(tree, own=own, scores=summed(tree, own))


def line(parents: list[int], node: int) -> list[int]:
    """A node and its ancestors, the root left out."""
    return [] if node == 0 else [node, *line(parents, parents[node])]


def plain_best(tree: Tree, row: int, among: list[int], count: int, worst: bool) -> list[int]:
    """The live nodes with the best scores: the shallower, then the earlier of equals; in order."""
    assert tree.scores is not None
    scores, depths = tree.scores[row].tolist(), tree.depths[row].tolist()
    live = [node for node in among if tree.live[row, node]]
    sign = 1 if worst else -1
    return sorted(sorted(live, key=lambda node: (sign * scores[node], depths[node], node))[:count])


def cut(tree: Tree, to: Nodes, chosen: NodesType) -> Tree:
    """The tree pruned to some nodes."""
    op = Prune(results=(Value("c"),), tree=Value("t"), to=Value("n"))
    whole = TreeType(nodes=tree.size, parents=None)
    return prune(op, tree, to, kind=whole, reads={op.tree: whole, op.to: chosen})


def chosen(columns: torch.Tensor, live: torch.Tensor) -> list[list[int]]:
    """Columns that are there, by request."""
    return [
        [column for column, there in zip(*both, strict=True) if there]
        for both in zip(columns.tolist(), live.tolist(), strict=True)
    ]


@given(seeds, st.booleans())
def test_the_best_nodes(seed: int, worst: bool) -> None:
    chance = Random(seed)
    tree = random_tree(chance)
    among = sorted(chance.sample(range(1, tree.columns), chance.randint(1, tree.size)))
    nodes = Nodes(tree, torch.tensor([among] * len(tree.tokens)), root=False)
    count = chance.randint(1, len(among))
    best = chosen(*best_columns(tree, nodes, count, worst=worst))
    assert best == [plain_best(tree, row, among, count, worst) for row in range(len(best))]
    limits = [chance.randint(0, count) for _ in best]
    fewer = chosen(*best_columns(tree, nodes, count, worst=worst, most=torch.tensor(limits)))
    assert fewer == [plain_best(tree, row, among, limit, worst) for row, limit in enumerate(limits)]


@given(seeds, st.booleans())
def test_what_is_pruned_keeps_its_paths(seed: int, by_score: bool) -> None:
    """Twice in turn, to the best nodes or to any: the paths are those of the tree before."""
    chance = Random(seed)
    tree = random_tree(chance)
    for _ in range(2):
        count = chance.randint(1, tree.size)
        if by_score:
            kind = NodesType(count, None, None, closed=True)
            op = Pick(results=(Value("b"),), tree=Value("t"), of="all", best=count)
            to = pick(op, tree, None, None, None, kind=kind)
        else:
            kind = NodesType(count, None, None)
            picked = [chance.sample(range(tree.columns), count) for _ in tree.tokens]
            to = Nodes(tree, torch.tensor(picked))
        pruned = cut(tree, to, kind)
        for row, columns in enumerate(chosen(to.columns, to.live)):
            parents = tree.parents[row].tolist()
            stay = {above for column in columns for above in line(parents, column)}
            wanted = {tree.keys[row, column].item() for column in stay}
            there = pruned.live[row].clone()
            there[0] = False
            assert set(pruned.keys[row, there].tolist()) == wanted
            assert tree.scores is not None and pruned.scores is not None
            before = dict(zip(tree.keys[row].tolist(), tree.scores[row].tolist(), strict=True))
            for column in there.nonzero()[:, 0].tolist():
                parent = int(pruned.parents[row, column])
                assert parent < column and pruned.live[row, parent]
                assert pruned.depths[row, column] == pruned.depths[row, parent] + 1
                assert pruned.scores[row, column] == before[pruned.keys[row, column].item()]
        tree = pruned


@given(seeds)
def test_lines_are_nodes_and_their_ancestors(seed: int) -> None:
    chance = Random(seed)
    tree = random_tree(chance)
    nodes = torch.tensor(
        [[chance.randrange(1, tree.columns) for _ in range(4)] for _ in tree.tokens]
    )
    lines = tree.lines(nodes)
    assert lines.shape == (*nodes.shape, tree.levels)
    for row, mine in enumerate(nodes.tolist()):
        for place, node in enumerate(mine):
            parents = tree.parents[row].tolist()
            assert set(lines[row, place].tolist()) - {0} == set(line(parents, node))


def test_as_many_as_there_are_is_no_choice() -> None:
    tree = random_tree(Random(3))
    op = Pick(results=(Value("b"),), tree=Value("t"), of="all", best=tree.size)
    kind = NodesType(tree.size, None, None, closed=True)
    to = pick(op, tree, None, None, None, kind=kind)
    assert to.at == range(1, tree.columns)
    pruned = cut(tree, to, kind)
    assert pruned.parents is tree.parents and pruned.live is tree.live
