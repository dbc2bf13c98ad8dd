"""`pick`: nodes of a tree, by place, by number, or the best or worst by score."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import at_or_below, first_columns
from specplan.backends.ops.tensors.values import Nodes, Tree, nodes_of
from specplan.ir.ops import Pick
from specplan.ir.types.value_types import NodesType
from specplan.runtime.masks import marked


def pick(
    op: Pick,
    tree: Tree,
    at: Tree | Nodes | None,
    count: Tensor | None,
    above: Tensor | float | None,
    *,
    kind: NodesType,
) -> Nodes:
    """Some nodes.

    Args:
        op: which.
        tree: whose.
        at: of `of=from`, the nodes at and below which.
        count: numbers `[B]`, at most how many.
        above: the bar of a probability, one number or one of each request, `[B]`.
        kind: what the verifier knows of them.
    """
    candidates = _placed(op, tree, None if at is None else nodes_of(at), kind)
    if op.nodes is not None:
        return _numbered(op.nodes, candidates)
    if above is not None:
        candidates = _above(tree, candidates, above, op.by == "own")
    bound = op.best if op.best is not None else op.worst
    if count is None and (bound is None or bound >= candidates.width):
        return candidates
    width = candidates.width if bound is None else min(bound, candidates.width)
    columns, live = best_columns(
        tree, candidates, width, worst=op.worst is not None, own=op.by == "own", most=count
    )
    among = candidates.at if isinstance(candidates.at, range) else candidates.among
    return Nodes(tree, columns, live, root=False, among=among)


def _above(tree: Tree, among: Nodes, bar: Tensor | float, own: bool) -> Nodes:
    """Nodes whose probability, of the path or of the token alone, is above a bar."""
    scores = tree.own if own else tree.scores
    assert scores is not None
    least = bar[:, None].to(scores) if isinstance(bar, Tensor) else bar
    columns = among.columns
    chosen = among.live & (columns > 0) & (scores.gather(1, columns).exp() > least)
    return Nodes(tree, *compacted(columns, chosen), root=False)


def _placed(op: Pick, tree: Tree, at: Nodes | None, kind: NodesType) -> Nodes:
    """All nodes at a place."""
    if op.of == "newest":
        tip = tree.columns if tree.chain and len(tree.newest) == 1 else 0
        return Nodes(tree, tree.newest, root=0 in tree.newest, after=tip)
    if op.of == "all":
        return Nodes(tree, range(1, tree.columns) if tree.size else range(1), root=not tree.size)
    if op.of == "leaves":
        chosen = (op.nodes, op.best, op.worst, op.above)
        every = all(one is None for one in chosen)
        known = kind.indices if every and tree.sure else None
        return _leaves(tree, known, kind.width if every else tree.size)
    assert op.of == "from" and at is not None, "the verifier sees to it"
    return at_and_below(tree, at) if op.nodes is None else _at_then_below(tree, at)


def _leaves(tree: Tree, known: tuple[int, ...] | None, most: int) -> Nodes:
    """Nodes without children, the root of an empty tree; where they are `known`, these."""
    if known is not None and max(known) < tree.size:
        start = known[0] + 1
        if known == tuple(range(known[0], known[-1] + 1)):
            return Nodes(tree, range(start, known[-1] + 2), root=start == 0, after=tree.columns)
        columns = _listed([index + 1 for index in known], tree.tokens)
        return Nodes(tree, columns, root=False)
    if not tree.size:
        return Nodes(tree, range(1), after=tree.columns)
    if tree.chain:
        depths = tree.depths * tree.live
        return Nodes(tree, depths.argmax(1, keepdim=True), after=tree.columns)
    inner = marked(tree.parents, tree.live, tree.columns)
    lonely = ~(tree.live[:, 1:].any(1, keepdim=True))
    leaves = torch.cat([lonely, (tree.live & ~inner)[:, 1:]], 1)
    return Nodes(tree, *first_columns(leaves, min(most, tree.columns)))


def at_and_below(tree: Tree, at: Nodes) -> Nodes:
    """Nodes that were picked from an earlier tree, and all that hangs below them now."""
    if at.after and at.width == 1:  # the tip of a chain, and what was grown since
        if isinstance(at.at, range) and at.at.stop == at.after:
            return Nodes(tree, range(at.at.start, tree.columns), root=at.root)
        grown = torch.arange(at.after, tree.columns, device=tree.tokens.device)
        below = grown.expand(len(tree.tokens), -1)
        return Nodes(tree, torch.cat([at.columns, below], 1), root=at.root)
    over = torch.zeros_like(tree.live).scatter(1, at.columns, at.live)
    return Nodes(tree, range(tree.columns), at_or_below(tree, over))


def _at_then_below(tree: Tree, at: Nodes) -> Nodes:
    """The same, the nodes `at` first, so that both can be told by number."""
    over = at_and_below(tree, at)
    mask = marked(over.columns, over.live, tree.columns)
    mask = mask.scatter(1, at.columns, False)
    below, there = first_columns(mask, tree.columns)
    chosen = torch.cat([at.live, there & tree.live.gather(1, below)], 1)
    return Nodes(tree, torch.cat([at.columns, below], 1), chosen, root=at.root)


def best_columns(
    tree: Tree,
    among: Nodes,
    width: int,
    *,
    worst: bool = False,
    own: bool = False,
    most: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The nodes with the best scores, in the tree's order; among equals the shallower, the earlier.

    So the best of all nodes hold their ancestors, as no node scores better than its parent.

    Args:
        tree: has scores.
        among: to choose from, rising.
        width: how many at most.
        worst: the worst instead.
        own: by the scores of tokens, not of paths.
        most: the same as `width` of each request, numbers `[B]`.

    Returns:
        Columns, int64 `[B, width]`, and which of them there are.
    """
    scores = tree.own if own else tree.scores
    assert scores is not None
    columns, live = among.columns, among.live
    if among.root and among.width > 1:  # the root is chosen for want of others
        drafted = live & (columns > 0)
        live = torch.where(drafted.any(1, keepdim=True), drafted, live)
    if not tree.layered:
        order = among.take(tree.depths).sort(dim=1, stable=True).indices
        columns, live = columns.gather(1, order), live.gather(1, order)
    ranks = scores.gather(1, columns)
    ranks = (-ranks if worst else ranks).where(live, -torch.inf)
    order = ranks.sort(dim=1, descending=True, stable=True).indices[:, :width]
    columns, live = columns.gather(1, order), live.gather(1, order)
    if most is not None:
        live = live & (torch.arange(width, device=live.device) < most.to(live.device)[:, None])
    return compacted(columns, live)


def compacted(columns: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Columns `[B, W]` in the tree's order, those that do not live behind the others."""
    order = columns.where(live, torch.iinfo(torch.int64).max).sort(dim=1).indices
    return columns.gather(1, order), live.gather(1, order)


def _numbered(numbers: tuple[int, ...], candidates: Nodes) -> Nodes:
    """Some of the nodes, by their place among them."""
    start = numbers[0]
    if isinstance(candidates.at, range) and numbers == tuple(range(start, start + len(numbers))):
        at = range(candidates.at.start + start, candidates.at.start + start + len(numbers))
        chosen = candidates.chosen
        chosen = None if chosen is None else chosen[:, start : start + len(numbers)]
        return Nodes(candidates.tree, at, chosen, root=at.start == 0)
    places = torch.tensor(numbers, device=candidates.columns.device)
    chosen = None if candidates.chosen is None else candidates.chosen.index_select(1, places)
    return Nodes(
        candidates.tree, candidates.columns.index_select(1, places), chosen, root=candidates.root
    )


def _listed(columns: list[int], like: Tensor) -> Tensor:
    """Columns that all requests share, int64 `[B, W]`."""
    return torch.tensor(columns, dtype=torch.int64, device=like.device).expand(len(like), -1)
