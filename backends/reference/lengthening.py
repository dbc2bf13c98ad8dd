"""Chains whose length differs by request: their tips, what is judged below them and kept.

A chain's node stands at the place of its depth, for every request; those past a request's tip are
dead. A node that takes the place of another is another node: it gets a number of its own, and no
cache has run it. Only a chain that grows from a tip that was carried on keeps dead nodes where they
were: the new node has the next place for every request, and parents say what it hangs on.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from specplan.backends.reference.values import (
    Nodes,
    Path,
    Rows,
    Tree,
    live_mask,
    per_request,
    shared_by_all,
)
from specplan.ir.types import ROOT
from specplan.runtime.acceptance import Judged
from specplan.runtime.sampling import SamplingSettings, law


def tip_and_below(tree: Tree, at: Nodes) -> Nodes:
    """The tip of an earlier chain, and the nodes that this one has below it."""
    grown = tree.size - at.tree.size
    if isinstance(at.indices, tuple):
        return Nodes(tree, (at.indices[0], *range(at.tree.size, tree.size)))
    return Nodes(tree, at.indices + torch.arange(grown + 1, device=at.indices.device))


def below(tree: Tree, rows: Rows) -> tuple[Tree, Rows]:
    """The chain below the first node of `rows` as a tree of its own, and the rows of its nodes.

    Args:
        tree: a chain.
        rows: of a node, which becomes the root, and of the W nodes below it, in order.
    """
    places = per_request(rows.indices, tree.tokens)[:, 1:]
    width = places.shape[1]
    live = live_mask(tree).gather(1, places)
    index = per_request(tree.law_index, tree.tokens).gather(1, places)
    drawn = tree.laws is not None and bool((index >= 0).any())
    inner = Tree(
        tokens=tree.tokens.gather(1, places),
        parents=tuple(range(ROOT, width - 1)),
        depths=tuple(range(1, width + 1)),
        live=live,
        laws=tree.laws if drawn else None,
        law_index=index if drawn else (-1,) * width,
        levels=width,
    )
    return inner, Rows(rows.logits, tuple(range(ROOT, width)))


def as_far_as_known(tree: Tree, rows: Rows) -> tuple[Tree, Rows, Tensor, Tensor]:
    """What can be judged of a chain, some nodes of which have no row: they end its path.

    Args:
        tree: a chain.
        rows: of the root and of some nodes that all requests share.

    Returns:
        The first nodes of the chain, each at the place of its depth, live where its parent has a
        row; rows for the root and all of them, those that are missing made up; where each stood in
        the tree, int64 `[B, W]`; and which have a row, bool `[B, W]`.
    """
    chain, order = in_order(tree)
    known = torch.tensor(shared_by_all(rows.indices), device=order.device)
    width = min(tree.size, len(known))
    order = order[:, :width]
    has_row = torch.isin(order, known) & live_mask(chain)[:, :width]
    judged = torch.cat([torch.ones_like(has_row[:, :1]), has_row[:, :-1]], 1)
    places = torch.cat([order.new_full((len(order), 1), ROOT), order.where(has_row, ROOT)], 1)
    first = replace(
        chain,
        tokens=chain.tokens[:, :width],
        parents=tuple(range(ROOT, width - 1)),
        depths=tuple(range(1, width + 1)),
        live=live_mask(chain)[:, :width] & judged,
        law_index=per_request(chain.law_index, order)[:, :width],
        levels=width,
    )
    return first, Rows(rows.of(places), tuple(range(ROOT, width))), order, has_row


def judged_below(tree: Tree, rows: Rows, judged: Judged) -> Path:
    """The path that was accepted of what `below` gave."""
    places = per_request(rows.indices, tree.tokens)[:, 1:]
    counts, bonuses = judged.accepted.tolist(), judged.bonus.tolist()
    nodes = places.gather(1, judged.path.clamp(min=0)) if judged.path.shape[1] else places[:, :0]
    numbers, tokens = tree.numbers_of(nodes).tolist(), tree.tokens.gather(1, nodes).tolist()
    return Path(
        [row[:count] for row, count in zip(numbers, counts, strict=True)],
        [[*row[:count], end] for row, count, end in zip(tokens, counts, bonuses, strict=True)],
        chain=True,
    )


def adopt(settings: SamplingSettings, tree: Tree, path: Path, rows: Rows) -> Tree:
    """The chain with a path judged below its tip; the bonus takes the place after it.

    Args:
        settings: of the requests.
        tree: the chain that was judged.
        path: what was accepted of it, and the bonus.
        rows: logits of the tip and of the nodes below it: tokens of the path follow their laws.
    """
    device = tree.tokens.device
    first = per_request(rows.indices, tree.tokens)[:, 0] + 1  # of the path
    kept = first + torch.tensor([len(nodes) for nodes in path.nodes], device=device)
    bonus = torch.tensor([tokens[-1:] for tokens in path.tokens], device=device)
    longer = continue_chains(tree, kept, bonus, torch.ones_like(bonus, dtype=torch.bool), 1)
    new = law(rows.logits, settings)
    places = first[:, None] + torch.arange(new.shape[1], device=device)
    laws = laws_with(tree, longer.size, places, new)
    return replace(longer, laws=laws, law_index=tuple(range(longer.size)))


def laws_with(tree: Tree, size: int, places: Tensor, new: Tensor) -> Tensor:
    """The laws of a chain by place, `[B, size, V]`, with new ones `[B, W, V]` at `[B, W]`."""
    laws = new.new_zeros(len(new), size, new.shape[2])
    if tree.laws is not None:
        laws[:, : tree.laws.shape[1]] = tree.laws
    return laws.scatter_(1, places[:, :, None].expand_as(new), new)


def tips(tree: Tree) -> Tensor:
    """The deepest live node of each chain, int64 `[B, 1]`; -1, the root, where none is live."""
    depths = per_request(tree.depths, tree.tokens) * live_mask(tree)
    deepest, places = depths.max(1, keepdim=True)
    return torch.where(deepest > 0, places, ROOT)


def in_order(tree: Tree) -> tuple[Tree, Tensor]:
    """The chain with each live node at the place of its depth, and where each stood, `[B, N]`.

    Its nodes are known to no cache.
    """
    depths = per_request(tree.depths, tree.tokens)
    past = tree.size + 1
    order = depths.where(live_mask(tree), past).sort(dim=1, stable=True).indices
    chain = replace(
        tree,
        tokens=tree.tokens.gather(1, order),
        parents=tuple(range(ROOT, tree.size - 1)),
        depths=tuple(range(1, tree.size + 1)),
        live=live_mask(tree).gather(1, order),
        law_index=per_request(tree.law_index, tree.tokens).gather(1, order),
        numbers=None,
    )
    return chain, order


def continue_chains(tree: Tree, kept: Tensor, tokens: Tensor, live: Tensor, more: int) -> Tree:
    """Chains with other tokens from some place on.

    Args:
        tree: a chain.
        kept: int64 `[B]`, places of each request that stay as they are.
        tokens: int64 `[B, W]`, those that follow.
        live: bool `[B, W]`, which of them there are, the first ones.
        more: places that are added at the end.

    Returns:
        A chain whose new nodes are ranked or given as far as it knows: it has no laws for them.
    """
    size, width = tree.size + more, tokens.shape[1]
    place = torch.arange(size, device=tokens.device)
    stays, new = place < kept[:, None], place - kept[:, None]

    def laid(old: Tensor, ahead: Tensor) -> Tensor:
        after = ahead.gather(1, new.clamp(0, width - 1))
        return torch.where(stays, functional.pad(old, (0, more)), after)

    numbers = tree.numbers_of(per_request(tuple(range(tree.size)), tree.tokens))
    fresh = tree.highest + 1 + new
    index = per_request(tree.law_index, tree.tokens)
    return replace(
        tree,
        tokens=laid(tree.tokens, tokens),
        parents=(place - 1).expand_as(stays),
        depths=(place + 1).expand_as(stays),
        live=laid(live_mask(tree), live) & (stays | (new < width)),
        law_index=laid(index, torch.full_like(tokens, -1)),
        newest=tuple(range(tree.size, size)),
        levels=size,
        branches=False,
        in_place=True,
        widest=1,
        numbers=torch.where(stays, functional.pad(numbers, (0, more)), fresh),
        most=tree.highest + size,
    )
