"""Trees that go from one round to the next: kept, filled, given new tokens, cut to what is left.

Their shape is the same for all requests; how much of it is live is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.growing import extended
from specplan.backends.reference.lengthening import in_order
from specplan.backends.reference.values import (
    Held,
    Nodes,
    Rows,
    Tree,
    live_mask,
    per_request,
    shared_by_all,
)
from specplan.ir.ops import Place, Relabel
from specplan.ir.plan import ValueState
from specplan.ir.state_types import loaded_type
from specplan.ir.types import ROOT, TreeType
from specplan.runtime.sampling import best

FAMILY = 1 << 12
"""Numbers of nodes apart that unrelated trees begin at: more than a tree has nodes."""


def first_value(state: ValueState, batch: int, device: torch.device) -> Held:
    """What a value state holds before the first round: a number, or a tree of its constant token.

    A tree that is told no token holds no node yet.
    """
    kind = loaded_type(state, state.name)
    if not isinstance(kind, TreeType):
        start = state.kind.get("init", 0.0)
        assert isinstance(start, int | float)
        return torch.full((batch,), float(start), dtype=torch.float64)
    token = state.kind.integer("init", -1)
    assert kind.parents is not None and kind.depths is not None
    shape = (batch, kind.nodes)
    return Tree(
        torch.full(shape, max(token, 0), dtype=torch.int64, device=device),
        kind.parents,
        kind.depths,
        live=torch.full(shape, token >= 0, dtype=torch.bool, device=device),
        law_index=(-1,) * kind.nodes,
        newest=tuple(range(kind.nodes)) or (ROOT,),
        levels=kind.depth,
    )


def numbered_from(tree: Tree, before: int) -> Tree:
    """The tree with numbers of its own, in a round of so many unrelated trees before it."""
    return replace(tree, first=before * FAMILY, numbers=None)


def filled_to(tree: Tree, like: Tree) -> Tree:
    """The tree in the larger shape of another one that begins alike; further nodes are dead."""
    assert isinstance(like.parents, tuple) and tree.parents == like.parents[: tree.size]
    missing = like.size - tree.size
    shape = (tree.tokens.shape[0], missing)
    return replace(
        like,
        tokens=torch.cat([tree.tokens, tree.tokens.new_zeros(shape)], 1),
        live=torch.cat([live_mask(tree), live_mask(like).new_zeros(shape)], 1),
        laws=tree.laws,
        law_index=(*shared_by_all(tree.law_index), *(-1,) * missing),
        distinct=tree.distinct,
    )


def place(op: Place, tree: Tree, at: Nodes) -> Tree:
    """A chain of constant tokens below each node, or below a chain's end up to a depth."""
    if op.upto is None:
        return _placed(tree, at, op.tokens)
    ends = live_mask(tree).sum(1)
    if op.upto > tree.size:
        tip = tree.size - 1
        longer = (op.tokens * (op.upto - tree.size))[: op.upto - tree.size]
        tree = _placed(tree, Nodes(tree, (tip,)), longer)
    steps = torch.arange(tree.size, device=tree.tokens.device)
    past = (steps - ends[:, None]).clamp(min=0) % len(op.tokens)
    constant = torch.tensor(op.tokens, device=tree.tokens.device)[past]
    new = steps >= ends[:, None]
    return replace(
        tree,
        tokens=torch.where(new, constant, tree.tokens),
        live=(steps < op.upto) | live_mask(tree),
        newest=tuple(range(tree.size)) or (ROOT,),
    )


def _placed(tree: Tree, at: Nodes, tokens: Sequence[int]) -> Tree:
    """A chain of these tokens below each node."""
    assert isinstance(at.indices, tuple)
    start, width = tree.size, len(at.indices)
    where: tuple[int, ...] = at.indices
    for token in tokens:
        column = tree.tokens.new_full((tree.tokens.shape[0], width), token)
        tree = extended(tree, Nodes(tree, where), (1,) * width, column)
        where = tree.newest
    return replace(tree, newest=tuple(range(start, tree.size)))


def relabel(op: Relabel, tree: Tree, rows: Rows | None, other: Tree | None) -> Tree:
    """The same shape with new tokens; what they come from must be live."""
    live = live_mask(tree)
    if rows is not None:
        assert isinstance(tree.parents, tuple)
        above = tree.parents if op.align == "parent" else tuple(range(tree.size))
        known = dict.fromkeys(above)
        likeliest = best(rows.of(tuple(known)), 1)[:, :, 0]
        places = [list(known).index(node) for node in above]
        tokens = likeliest[:, places]
    elif other is not None:
        mapped = list(op.map) or list(range(tree.size))
        tokens, live = other.tokens[:, mapped], live_mask(other)[:, mapped]
    else:
        tokens = torch.full_like(tree.tokens, op.token or 0)
    return replace(as_given(tree), tokens=tokens, live=live, scores=None)


def as_given(tree: Tree) -> Tree:
    """The tree whose nodes count as given: nothing is known of how they were drawn."""
    return replace(tree, laws=None, law_index=(-1,) * tree.size, distinct=False)


def reroot(tree: Tree, emitted: Tensor, counts: Tensor, nodes: int | None = None) -> Tree:
    """What is left of a chain below the emitted tokens: nothing where it says something else.

    Args:
        tree: a chain; requests may have shapes of their own.
        emitted: tokens, int64 `[B, W]`.
        counts: how many of them were emitted, int64 `[B]`.
        nodes: of what is left, the first so many; all when None.

    Returns:
        A chain of one shape for all requests, whose nodes keep the laws that they were drawn from.
    """
    chain, _ = in_order(tree)
    known, device = live_mask(chain), tree.tokens.device
    width = min(emitted.shape[1], chain.size)
    alike = known[:, :width] & (chain.tokens[:, :width] == emitted[:, :width])
    beyond = torch.arange(width, device=device) >= counts[:, None]
    same = (alike | beyond).all(1) & (counts <= chain.size)
    size = chain.size if nodes is None else min(nodes, chain.size)
    source = counts[:, None] + torch.arange(size, device=device)
    held = (source < chain.size) & same[:, None]
    source = source.clamp(max=max(chain.size - 1, 0))
    laws, index = None, (-1,) * size
    if chain.laws is not None:
        rows = per_request(chain.law_index, tree.tokens).gather(1, source).clamp(min=0)
        laws = chain.laws.gather(1, rows[:, :, None].expand(-1, -1, chain.laws.shape[2]))
        index = tuple(range(size))
    return Tree(
        chain.tokens.gather(1, source).where(held, 0),
        tuple(range(ROOT, size - 1)),
        tuple(range(1, size + 1)),
        live=known.gather(1, source) & held,
        laws=laws,
        law_index=index,
        newest=tuple(range(size)) or (ROOT,),
        levels=size,
    )


def either(flag: Tensor, entered: Held, kept: Held) -> Held:
    """Request by request one of two values, which are of one kind and shape.

    Args:
        flag: bool `[B]`, where it is what was entered.
        entered: a tree, number or flag.
        kept: the other.
    """
    if isinstance(entered, Tree) and isinstance(kept, Tree):
        if entered.size < kept.size:
            entered = filled_to(entered, kept)
        elif kept.size < entered.size:
            kept = filled_to(kept, entered)
        chosen = flag[:, None].to(entered.tokens.device)
        return replace(
            entered,
            tokens=torch.where(chosen, entered.tokens, kept.tokens),
            live=chosen & live_mask(entered) | ~chosen & live_mask(kept),
        )
    assert isinstance(entered, Tensor) and isinstance(kept, Tensor)
    return torch.where(flag, entered, kept)
