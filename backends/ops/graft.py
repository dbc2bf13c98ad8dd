"""`graft`: trees joined at the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import rehung
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Graft
from specplan.ir.ops.graft import LEAST_WEIGHT
from specplan.ir.types.value_types import TreeType
from specplan.runtime.masks import first_true


def graft(op: Graft, trees: Sequence[Tree], weights: Sequence[Tensor], *, kind: TreeType) -> Tree:
    """All nodes of all trees, tree after tree.

    Args:
        op: says whether equal siblings are kept apart.
        trees: with one root.
        weights: numbers `[B]`, one for each tree, or none.
        kind: what the verifier knows of the result.
    """
    if weights:
        trees = [*map(_weighed, trees, weights)]
    joined = _side_by_side(trees, kind.is_chain)
    return joined if op.same == "keep" or not joined.size else _merged(joined)


def _weighed(tree: Tree, weight: Tensor) -> Tree:
    """The tree, the probabilities of all its paths multiplied."""
    if tree.scores is None or tree.own is None or not tree.size:
        return tree
    heavier = weight.to(tree.scores).clamp(min=LEAST_WEIGHT).log()[:, None]
    scores = torch.cat([tree.scores[:, :1], tree.scores[:, 1:] + heavier], 1)
    own = tree.own + heavier * ((tree.parents == 0) & (tree.depths > 0))
    return replace(tree, scores=scores, own=own)


def _side_by_side(trees: Sequence[Tree], chain: bool) -> Tree:
    """Equal siblings apart."""
    parents, probs, start, probs_before = list[Tensor](), list[Tensor](), 0, 0
    for tree in trees:
        own = tree.parents[:, 1:]
        parents.append(torch.where(own > 0, own + start, own) if start else own)
        drawn = tree.probs_row[:, 1:]
        probs.append(
            torch.where(drawn >= 0, drawn + probs_before, drawn) if probs_before else drawn
        )
        start += tree.size
        probs_before += tree.probs_count
    first = trees[0]
    scored = first.scores is not None

    def joined(name: str) -> Tensor:
        parts = [getattr(tree, name) for tree in trees]
        return torch.cat([parts[0][:, :1], *(part[:, 1:] for part in parts)], 1)

    return Tree(
        tokens=joined("tokens"),
        parents=torch.cat([first.parents[:, :1], *parents], 1),
        depths=joined("depths"),
        live=joined("live"),
        keys=joined("keys"),
        probs_row=torch.cat([first.probs_row[:, :1], *probs], 1),
        probs=tuple(block for tree in trees for block in tree.probs),
        own=joined("own") if scored else None,
        scores=joined("scores") if scored else None,
        levels=max(tree.levels for tree in trees),
        distinct=any(tree.distinct for tree in trees),
        newest=range(1, start + 1) if start else range(1),
        widest=sum(tree.widest for tree in trees),
        chain=chain,
        in_order=False,
        sure=all(tree.sure for tree in trees),
        logits=tuple(one for tree in trees for one in tree.logits),
        noise=tuple(one for tree in trees for one in tree.noise),
    )


def _merged(tree: Tree) -> Tree:
    """What hangs below equal siblings hangs below the first of them, request by request.

    The others stay: a token that was drawn is judged by the law that it was drawn from, and its
    children are drawn from laws of the same path. Of tokens that were not drawn they say nothing
    more, so that they are dead; the first has the summed probability of all their paths.
    """
    places = torch.arange(tree.columns, device=tree.tokens.device)
    own = places.expand_as(tree.tokens)
    same = (tree.keys[:, :, None] == tree.keys[:, None, :]) & (places[None, :] < places[:, None])
    same = same & (tree.depths[:, :, None] == tree.depths[:, None, :])
    same = same & tree.live[:, :, None] & tree.live[:, None, :]
    first = torch.where(same.any(2), first_true(same, 2)[:, :, 0], own)
    parents = first.gather(1, tree.parents)
    again = first != own
    live = tree.live & ((tree.probs_row >= 0) | ~again)
    scores = None if tree.scores is None else _summed(tree, tree.scores, first, parents)
    own_scores = tree.own
    if scores is not None:
        own_scores = scores - scores.gather(1, parents)
    merged = replace(tree, parents=parents, live=live, scores=scores, own=own_scores, chain=False)
    return rehung(merged)


def _summed(tree: Tree, scores: Tensor, first: Tensor, parents: Tensor) -> Tensor:
    """Path scores of merged nodes, none better than its drafted parent's; -inf of the others."""
    nodes = torch.arange(tree.columns, device=scores.device)
    members = (first[:, None, :] == nodes[:, None]) & tree.live[:, None, :]
    total = scores[:, None, :].where(members, -torch.inf).logsumexp(2)
    free = torch.full_like(total[:, :1], torch.inf)  # children of the root may sum to more than 1
    for _ in range(tree.levels - 1):  # sums are rounded
        above = torch.cat([free, total[:, 1:]], 1).gather(1, parents)
        total = torch.cat([total[:, :1], total.minimum(above)[:, 1:]], 1)
    return total
