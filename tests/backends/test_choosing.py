"""`pick` by score and `prune`, against what they say put plainly, one request at a time."""

from __future__ import annotations

from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from specplan.backends.reference.choosing import best_nodes, pick, prune
from specplan.backends.reference.values import Nodes, Tree, per_request
from specplan.ir.ops import Pick
from specplan.ir.types import ROOT
from specplan.ir.values import Value

seeds = st.integers(0, 2**32 - 1)


def random_tree(chance: Random, *, shared: bool) -> Tree:
    """A tree of up to 12 nodes for up to 3 requests, with many equal scores."""
    batch, size = chance.randint(1, 3), chance.randint(1, 12)
    shapes = [[chance.randint(-1, node - 1) for node in range(size)] for _ in range(batch)]
    if shared:
        shapes = shapes[:1] * batch
    depths: list[list[int]] = []
    scores: list[list[float]] = []
    for parents in shapes:
        depths.append([])
        scores.append([])
        for parent in parents:
            depths[-1].append(1 if parent == ROOT else depths[-1][parent] + 1)
            above = 0.0 if parent == ROOT else scores[-1][parent]
            scores[-1].append(above - chance.choice((0.0, 0.5, 1.0)))
    return Tree(
        tokens=torch.tensor([[chance.randrange(99) for _ in range(size)] for _ in range(batch)]),
        parents=tuple(shapes[0]) if shared else torch.tensor(shapes),
        depths=tuple(depths[0]) if shared else torch.tensor(depths),
        law_index=(-1,) * size,
        newest=(size - 1,),
        levels=max(map(max, depths)),
        scores=torch.tensor(scores),
    )


def plain_best(tree: Tree, row: int, among: list[int], count: int) -> list[int]:
    """The nodes with the best scores: the shallower, then the earlier of equals; in order."""
    assert tree.scores is not None
    scores = tree.scores[row].tolist()
    depths = per_request(tree.depths, tree.tokens)[row].tolist()
    return sorted(sorted(among, key=lambda node: (-scores[node], depths[node], node))[:count])


def line(parents: list[int], node: int) -> list[int]:
    """A node and its ancestors."""
    return [] if node == ROOT else [node, *line(parents, parents[node])]


@given(seeds, st.booleans())
def test_the_best_nodes(seed: int, shared: bool) -> None:
    chance = Random(seed)
    tree = random_tree(chance, shared=shared)
    among = sorted(chance.sample(range(tree.size), chance.randint(1, tree.size)))
    count = chance.randint(1, len(among))
    found = best_nodes(tree, tuple(among), count).tolist()
    assert found == [plain_best(tree, row, among, count) for row in range(len(found))]


@given(seeds, st.booleans())
def test_what_is_pruned_keeps_its_paths(seed: int, shared: bool) -> None:
    """Twice in turn: the numbers of nodes are those of the tree that was drafted."""
    chance = Random(seed)
    first = tree = random_tree(chance, shared=shared)
    shapes = per_request(first.parents, first.tokens).tolist()
    kept = [list(range(first.size)) for _ in shapes]
    for _ in range(2):
        count = chance.randint(1, tree.size)
        op = Pick(results=(Value("b"),), tree=Value("t"), of="all", best=count)
        kept = [
            [held[node] for node in plain_best(tree, row, list(range(tree.size)), count)]
            for row, held in enumerate(kept)
        ]
        tree = prune(tree, pick(op, tree))
        assert tree.size == count and tree.newest == tuple(range(count))
        numbers = torch.arange(count).expand(len(kept), -1)
        assert tree.numbers_of(numbers).tolist() == kept
        for row, held in enumerate(kept):
            assert tree.tokens[row].tolist() == first.tokens[row, held].tolist()
            places = {ROOT: ROOT, **{old: new for new, old in enumerate(held)}}
            wanted = [places[shapes[row][old]] for old in held]
            assert per_request(tree.parents, tree.tokens)[row].tolist() == wanted
            assert tree.scores is not None and first.scores is not None
            assert tree.scores[row].tolist() == first.scores[row, held].tolist()
    assert tree.highest == first.size - 1 or tree.numbers is None


@given(seeds)
def test_ancestors_are_kept(seed: int) -> None:
    chance = Random(seed)
    tree = random_tree(chance, shared=True)
    assert isinstance(tree.parents, tuple)
    chosen = tuple(chance.sample(range(tree.size), chance.randint(0, tree.size)))
    pruned = prune(tree, Nodes(tree, chosen or (ROOT,)))
    kept = sorted({above for node in chosen for above in line(list(tree.parents), node)})
    assert pruned.size == len(kept)
    numbers = torch.arange(pruned.size).expand(len(tree.tokens), -1)
    assert pruned.numbers_of(numbers)[0].tolist() == kept


@given(seeds, st.booleans())
def test_lines_are_nodes_and_their_ancestors(seed: int, shared: bool) -> None:
    chance = Random(seed)
    tree = random_tree(chance, shared=shared)
    nodes = torch.tensor([[chance.randrange(tree.size) for _ in range(4)] for _ in tree.tokens])
    lines = tree.lines(nodes)
    shapes = per_request(tree.parents, tree.tokens).tolist()
    assert lines.shape == (*nodes.shape, tree.levels)
    for row, mine in enumerate(nodes.tolist()):
        for place, node in enumerate(mine):
            assert set(lines[row, place].tolist()) == set(line(shapes[row], node))


def test_as_many_as_there_are_is_no_choice() -> None:
    tree = random_tree(Random(3), shared=True)
    op = Pick(results=(Value("b"),), tree=Value("t"), of="all", best=tree.size)
    chosen = pick(op, tree)
    assert chosen.indices == tuple(range(tree.size))
    pruned = prune(tree, chosen)
    assert pruned.parents == tree.parents and pruned.numbers is None and not pruned.own
