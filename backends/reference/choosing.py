"""The ops that choose among the nodes of a tree: `pick`, and `prune` to what was picked.

A choice by score differs by request: its nodes are a tensor, and so is the shape of a pruned tree.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.lengthening import tip_and_below, tips
from specplan.backends.reference.values import Nodes, Tree, per_request
from specplan.ir.ops import Measure, Op, Pick
from specplan.ir.types import ROOT


def reads_scores(op: Op) -> bool:
    """Whether an op asks for the path scores of nodes."""
    chosen = isinstance(op, Pick) and op.best is not None
    return chosen or (isinstance(op, Measure) and op.kind.name == "value")


def pick(op: Pick, tree: Tree, at: Nodes | None = None) -> Nodes:
    """The newest nodes, the leaves or all: all of these, some by number, or the best by score.

    Of a chain also what hangs below its earlier tip `at`, that one included.
    """
    if at is not None:
        return tip_and_below(tree, at)
    if op.of == "leaves" and tree.live is not None and tree.size:  # of a chain, as long as it is
        return Nodes(tree, tips(tree), tips=True)
    chosen = tree.newest
    if op.of == "leaves":
        assert isinstance(tree.parents, tuple)
        chosen = tuple(n for n in range(tree.size) if n not in tree.parents) or (ROOT,)
    if op.of == "all":
        chosen = tuple(range(tree.size)) or (ROOT,)
    if op.nodes is not None:
        chosen = tuple(chosen[index] for index in op.nodes)
    if op.best is None or op.best >= len(chosen):
        return Nodes(tree, chosen)
    return Nodes(tree, best_nodes(tree, chosen, op.best))


def best_nodes(tree: Tree, among: tuple[int, ...], count: int) -> Tensor:
    """The nodes with the best path scores, in the tree's order.

    Among equals the shallower comes first, then the earlier: so the best of all nodes hold their
    ancestors, as no node scores better than its parent.

    Args:
        tree: has scores.
        among: to choose from, ascending.
        count: fewer than `among`.

    Returns:
        int64 `[B, count]`.
    """
    assert tree.scores is not None
    nodes = per_request(among, tree.tokens)
    depths = per_request(tree.depths, tree.tokens).gather(1, nodes)
    nodes = nodes.gather(1, depths.sort(dim=1, stable=True).indices)
    order = tree.scores.gather(1, nodes).sort(dim=1, descending=True, stable=True).indices
    return nodes.gather(1, order[:, :count]).sort(dim=1).values


def prune(tree: Tree, to: Nodes) -> Tree:
    """The nodes `to` and their ancestors, renumbered in the tree's order.

    Nodes that differ by request hold their ancestors; a plan where they may not is refused before
    it runs.
    """
    if isinstance(to.indices, Tensor):
        return _kept(tree, to.indices)
    if len(set(to.indices) - {ROOT}) == tree.size:
        return replace(tree, newest=tuple(range(tree.size)) or (ROOT,))
    kept = sorted({above for node in to.indices for above in tree.ancestors(node)})
    return _kept(tree, per_request(tuple(kept), tree.tokens))


def _kept(tree: Tree, kept: Tensor) -> Tree:
    """The tree of the nodes `kept` `[B, M]`, ascending and with their ancestors."""
    size = kept.shape[1]
    places = torch.arange(size, device=kept.device).expand_as(kept)
    place_of = torch.full((len(kept), tree.size + 1), ROOT, device=kept.device)
    place_of.scatter_(1, kept + 1, places)
    parents = per_request(tree.parents, tree.tokens).gather(1, kept)
    return replace(
        tree,
        tokens=tree.tokens.gather(1, kept),
        parents=place_of.gather(1, parents + 1),
        depths=per_request(tree.depths, tree.tokens).gather(1, kept),
        law_index=(-1,) * size,
        newest=tuple(range(size)) or (ROOT,),
        live=None if tree.live is None else tree.live.gather(1, kept),
        scores=None if tree.scores is None else tree.scores.gather(1, kept),
        branches=not tree.is_chain,
        numbers=tree.numbers_of(kept),
        most=tree.highest,
    )
