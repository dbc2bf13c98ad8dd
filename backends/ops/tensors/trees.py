"""Operations on trees: add columns, select columns, change the root, add room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from specplan.backends.ops.tensors.keys import NO_KEY, child_keys, keys_along
from specplan.backends.ops.tensors.values import FIELDS, Nodes, Tree
from specplan.runtime.masks import prefix

_DEAD = {"depths": 1, "keys": NO_KEY, "probs_row": -1}
"""Fields of a node that is not there, where they are not 0."""


def extended(
    tree: Tree,
    parents: Tensor,
    tokens: Tensor,
    live: Tensor,
    *,
    own: Tensor | None = None,
    probs_row: Tensor | None = None,
    at: Nodes | None = None,
    **facts: Any,
) -> Tree:
    """The tree with one more level of nodes.

    Args:
        tree: what grows.
        parents: columns of the tree, int64 `[B, C]`.
        tokens: int64 `[B, C]`.
        live: bool `[B, C]`; no child of a dead node does.
        own: scores `[B, C]`; those of sure tokens when None.
        probs_row: int64 `[B, C]`; -1 when None.
        at: the parents, where each has one child.
        facts: other fields of the tree that change.
    """

    def above(field: Tensor) -> Tensor:
        return field.gather(1, parents) if at is None else at.take(field)

    new: dict[str, Tensor] = {
        "tokens": tokens, "parents": parents, "depths": above(tree.depths) + 1, "live": live,
        "keys": child_keys(above(tree.keys), tokens),
    }  # fmt: skip
    if probs_row is not None:
        new["probs_row"] = probs_row
    if tree.scores is not None:
        new["scores"] = above(tree.scores)
        if own is not None:
            new |= {"own": own, "scores": new["scores"] + own}
    columns = range(tree.columns, tree.columns + tokens.shape[1])
    return lengthened(tree, new, **{"levels": tree.levels + 1, "tips": columns, **facts})


def chains_below(
    tree: Tree,
    at: Nodes,
    tokens: Tensor,
    live: Tensor,
    alive: Tensor,
    counts: Sequence[int],
    chain: bool,
) -> Tree:
    """The tree with chains of tokens below nodes, chain by chain.

    Args:
        tree: what grows.
        at: below which nodes, W of them.
        tokens: int64 `[B, W * C, L]`, C chains for each node.
        live: which of them there are, of the same shape.
        alive: which nodes there are, bool `[B, W]`.
        counts: how many of its chains each node gets, C at most.
        chain: the result is a chain.
    """
    device, most, length = tokens.device, max(counts), tokens.shape[2]
    above = [place for place, count in enumerate(counts) for _ in range(count)]
    if not above:
        return tree
    parents, keys, depths = at.columns, at.take(tree.keys), at.take(tree.depths)
    if set(counts) != {1}:
        place = torch.tensor(above, device=device)
        parents, keys, depths, alive = (
            part.index_select(1, place) for part in (parents, keys, depths, alive)
        )
    if len(above) != tokens.shape[1]:
        listed = [n * most + child for n, count in enumerate(counts) for child in range(count)]
        chosen = torch.tensor(listed, device=device)
        tokens, live = tokens.index_select(1, chosen), live.index_select(1, chosen)
    columns = range(tree.columns, tree.columns + len(above) * length)
    below = torch.arange(columns.start - 1, columns.stop - 1, device=device)
    below = below.view(len(above), length).expand_as(tokens)
    new = {
        "tokens": tokens,
        "parents": torch.cat([parents[:, :, None], below[:, :, 1:]], 2),
        "depths": depths[:, :, None] + torch.arange(1, length + 1, device=device),
        "live": live & alive[:, :, None],
        "keys": keys_along(keys[:, :, None], tokens),
    }
    if tree.scores is not None:
        new["scores"] = tree.scores.gather(1, parents)[:, :, None].expand(-1, -1, length)
    return lengthened(
        tree,
        {name: field.flatten(1) for name, field in new.items()},
        levels=tree.levels + length,
        widest=tree.widest_below(at, most),
        tips=columns if length == 1 else columns[-1:] if len(above) == 1 else range(0),
        chain=chain,
        in_order=tree.in_order and chain and at.is_last_of(tree),
    )


def lengthened(tree: Tree, new: Mapping[str, Tensor], **facts: Any) -> Tree:
    """The tree with more columns.

    Args:
        tree: what grows.
        new: what the columns have, `[B, C]` each; left out may be `probs_row` of nodes that were
            drawn from no law, and `own` of those that are sure.
        facts: other fields of the tree that change.
    """
    size, fields, before = new["tokens"].shape[1], dict[str, Any](), tree.fields
    for name, known in zip(FIELDS, before, strict=True):
        if known is not None and name not in new:
            fields[name] = pad(known, (0, size), value=-1 if name == "probs_row" else 0)
        else:
            fields[name] = known if known is None else torch.cat([known, new[name]], 1)
    facts = {"newest": range(tree.columns, tree.columns + size), "layered": False, **facts}
    return replace(tree, **fields, **facts, grown=(before, tuple(fields.values())))


def closed_up(tree: Tree) -> Tree:
    """A chain whose live nodes stand in order, before those that are not there."""
    if not tree.size:
        return tree
    drafted = torch.arange(tree.columns, device=tree.tokens.device) > 0
    order, live = first_columns(tree.live & drafted, tree.size, tree.depths)

    def moved(field: Tensor) -> Tensor:
        return torch.cat([field[:, :1], field.gather(1, order)], 1)

    own = None if tree.own is None else moved(tree.own)
    tokens, probs_row = moved(tree.tokens), moved(tree.probs_row)
    above = (torch.arange(tree.columns, device=tokens.device) - 1).clamp(min=0)
    return replace(
        tree,
        tokens=tokens,
        parents=above.expand_as(tokens),
        probs_row=probs_row,
        live=torch.cat([tree.live[:, :1], live], 1),
        own=own,
        in_order=True,
    )


def rehung(tree: Tree, roots: Tensor | None = None) -> Tree:
    """The tree with the keys, depths and liveness that follow from its tokens and parents.

    Args:
        tree: whose `live` says of each node whether it is there.
        roots: keys of the roots, int64 `[B, 1]`; as they are when None.
    """
    keys = tree.keys if roots is None else roots.expand_as(tree.keys)
    root, parents = keys[:, :1], tree.parents
    if tree.chain and tree.in_order:
        keys = torch.cat([root, keys_along(root, tree.tokens[:, 1:])], 1)
        depths = torch.arange(tree.columns, device=keys.device).expand_as(keys)
        return replace(tree, keys=keys, depths=depths, live=prefix(tree.live))
    depths, live = torch.zeros_like(parents), tree.live
    for _ in range(tree.levels):
        keys = child_keys(keys.gather(1, parents), tree.tokens)
        keys = torch.cat([root, keys[:, 1:]], 1)
        depths = depths.gather(1, parents) + 1
        depths = torch.cat([torch.zeros_like(root), depths[:, 1:]], 1)
        live = live & live.gather(1, parents)
    return replace(tree, keys=keys, depths=depths, live=live)


def selected(
    tree: Tree, order: Tensor, live: Tensor, *, root: Tensor | None = None, levels: int
) -> Tree:
    """The tree of some of its columns, renumbered.

    Args:
        tree: where they are taken from.
        order: columns of nodes, int64 `[B, M]`, parents before children.
        live: bool `[B, M]`, which of them there are.
        root: the column of the new root, int64 `[B, 1]`; the old one when None.
        levels: no node is deeper below it.
    """
    root = torch.zeros_like(order[:, :1]) if root is None else root
    order = torch.cat([root, order], 1)
    live = torch.cat([torch.ones_like(root, dtype=torch.bool), live], 1)
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    place_of = torch.zeros_like(tree.parents).scatter(1, order, places)
    fields = tree.changed(lambda field: field.gather(1, order))
    parents = place_of.gather(1, fields["parents"])
    fields["parents"] = torch.cat([torch.zeros_like(root), parents[:, 1:]], 1)
    fields["live"] = live & fields["live"]
    fields["depths"] = fields["depths"] - fields["depths"][:, :1]
    if "scores" in fields:
        fields["scores"] = fields["scores"] - fields["scores"][:, :1]
    return replace(
        tree,
        **fields,  # type: ignore[arg-type]
        levels=levels,
        layered=False,
        newest=range(1, order.shape[1]) if order.shape[1] > 1 else range(1),
        tips=range(0),
    )


def padded_to(tree: Tree, columns: int) -> Tree:
    """The tree with dead nodes below the root, so that it has this many columns at least."""
    more = columns - tree.columns
    if more <= 0:
        return tree
    fields = {
        name: torch.cat([field, field.new_full((len(field), more), _DEAD.get(name, 0))], 1)
        for name, field in zip(FIELDS, tree.fields, strict=True)
        if field is not None
    }
    return replace(tree, **fields, levels=max(tree.levels, 1))  # type: ignore[arg-type]


def with_own_probs(tree: Tree) -> Tree:
    """The tree with the probabilities of each drawn node at its own place, and no others."""
    probs = tree.all_probs
    if probs is None:
        return tree
    drawn_from = tree.probs_row[:, 1:]
    own = probs.gather(1, drawn_from.clamp(min=0)[:, :, None].expand(-1, -1, probs.shape[2]))
    places = torch.arange(tree.size, device=drawn_from.device).where(drawn_from >= 0, -1)
    return replace(tree, probs=(own,), probs_row=torch.cat([tree.probs_row[:, :1], places], 1))


def as_given(tree: Tree) -> Tree:
    """The tree whose nodes all count as given, without the probabilities they were drawn from."""
    return replace(
        tree,
        probs=(),
        probs_row=torch.full_like(tree.probs_row, -1),
        distinct=False,
        logits=(),
        noise=(),
    )


def first_columns(mask: Tensor, width: int, order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The first columns `[B, width]` where a mask `[B, C]` is true, and which of them exist.

    Args:
        mask: what is wanted.
        width: how many at most.
        order: what comes first, int64 `[B, C]`; the columns themselves when None.
    """
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    rank = places if order is None else order
    past = rank.new_full((), torch.iinfo(torch.int64).max)
    columns = rank.where(mask, past).sort(dim=1, stable=True).indices[:, :width]
    return columns, mask.gather(1, columns)


def counts_of(children: int | Sequence[int], width: int) -> tuple[int, ...]:
    """Children of each of `width` nodes; a longer list also counts nodes that are missing."""
    return (children,) * width if isinstance(children, int) else tuple(children)[:width]


def summed(tree: Tree, own: torch.Tensor) -> torch.Tensor:
    """Scores of tokens summed along the paths."""
    total = own
    for _ in range(tree.levels - 1):
        above = total.gather(1, tree.parents)
        total = torch.cat([own[:, :1], (own + above)[:, 1:]], 1)
    return total


def at_or_below(tree: Tree, top: Tensor) -> Tensor:
    """Columns that a mask `[B, 1 + N]` marks, and all that hangs below them."""
    below = top
    for _ in range(tree.levels):
        below = below | below.gather(1, tree.parents)
    return below
