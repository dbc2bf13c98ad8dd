"""The op that joins trees at the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.values import (
    Indices,
    Tree,
    live_mask,
    per_request,
    shared_by_all,
)
from specplan.ir.ops import Graft
from specplan.ir.types import ROOT
from specplan.runtime.masks import first_true


def graft(op: Graft, trees: Sequence[Tree]) -> Tree:
    """All nodes of all trees, tree after tree; each keeps its number.

    Args:
        op: says whether equal siblings are kept apart.
        trees: with shapes that all requests share.
    """
    joined = _side_by_side(trees)
    return joined if op.same == "keep" or not joined.size else _merged(joined)


def _side_by_side(trees: Sequence[Tree]) -> Tree:
    """Equal siblings apart."""
    starts, size = [], 0
    for tree in trees:
        starts.append(size)
        size += tree.size
    scored = all(tree.scores is not None for tree in trees if tree.size)
    everywhere = all(tree.live is None for tree in trees)
    depths = tuple(depth for tree in trees for depth in shared_by_all(tree.depths))
    laws = [tree.laws for tree in trees if tree.laws is not None]
    return Tree(
        tokens=torch.cat([tree.tokens for tree in trees], 1),
        parents=tuple(
            parent if parent == ROOT else parent + start
            for tree, start in zip(trees, starts, strict=True)
            for parent in shared_by_all(tree.parents)
        ),
        depths=depths,
        live=None if everywhere else torch.cat([live_mask(tree) for tree in trees], 1),
        laws=torch.cat(laws, 1) if laws else None,
        law_index=_law_rows(trees),
        distinct=any(tree.distinct for tree in trees),
        newest=tuple(range(size)) or (ROOT,),
        levels=max(depths, default=0),
        widest=_widest(trees),
        scores=torch.cat([tree.scores for tree in trees if tree.scores is not None], 1)
        if scored and size
        else None,
        numbers=tuple(n for tree in trees for n in tree.numbered(range(tree.size))),
        most=max(tree.highest for tree in trees),
    )


def _law_rows(trees: Sequence[Tree]) -> tuple[int, ...]:
    """Per node its row among the laws of all trees, or -1."""
    found: list[int] = []
    known = 0
    for tree in trees:
        found += [row if row < 0 else row + known for row in shared_by_all(tree.law_index)]
        known += 0 if tree.laws is None else tree.laws.shape[1]
    return tuple(found)


def _widest(trees: Sequence[Tree]) -> int:
    """Most children of a node, equal siblings merged or not; 0 where a tree does not say."""
    drafted = [tree.widest for tree in trees if tree.size]
    return sum(drafted) if all(drafted) else 0


def _merged(tree: Tree) -> Tree:
    """What hangs below equal siblings hangs below the first of them, request by request.

    The others stay: a token that was drawn is judged by the law that it was drawn from, and its
    children are drawn from laws of the same path. Of tokens that were not drawn they say nothing
    more, so that they are dead; the first has the summed probability of all their paths.
    """
    live, own = live_mask(tree), per_request(tuple(range(tree.size)), tree.tokens)
    first, parents = own, per_request(tree.parents, tree.tokens)
    comparable = _comparable(tree.depths, tree.tokens) & live[:, :, None] & live[:, None, :]
    comparable &= tree.tokens[:, :, None] == tree.tokens[:, None, :]
    for _ in range(tree.levels):
        same = comparable & (parents[:, :, None] == parents[:, None, :])
        first = torch.where(same.any(2), first_true(same, 2)[:, :, 0], own)
        parents = _below(first, tree.parents)
    again = first != own
    drawn = per_request(tree.law_index, tree.tokens) >= 0
    return replace(
        tree,
        parents=parents,
        depths=per_request(tree.depths, tree.tokens),
        live=live & (drawn | ~again),
        widest=max(map(shared_by_all(tree.depths).count, set(shared_by_all(tree.depths)))),
        scores=None if tree.scores is None else _summed(tree, tree.scores, live, first, parents),
    )


def _comparable(depths: Indices, like: Tensor) -> Tensor:
    """Bool `[1, N, N]`: whether node j stands before node i, at the same depth."""
    levels = per_request(depths, like)[:1]
    places = torch.arange(levels.shape[1], device=like.device)
    return (levels[:, :, None] == levels[:, None, :]) & (places[None, :] < places[:, None])


def _below(first: Tensor, parents: Indices) -> Tensor:
    """Parents `[B, N]`, each the first of those that are equal."""
    above = per_request(parents, first)
    return torch.where(above == ROOT, above, first.gather(1, above.clamp(min=0)))


def _summed(tree: Tree, scores: Tensor, live: Tensor, first: Tensor, parents: Tensor) -> Tensor:
    """Path scores of merged nodes `[B, N]`, none better than its parent's; -inf of the others."""
    nodes = torch.arange(tree.size, device=scores.device)
    members = (first[:, None, :] == nodes[:, None]) & live[:, None, :]
    total = scores[:, None, :].where(members, -torch.inf).logsumexp(2)
    for _ in range(tree.levels - 1):  # sums are rounded
        above = total.gather(1, parents.clamp(min=0)).where(parents != ROOT, torch.inf)
        total = total.minimum(above)
    return total
