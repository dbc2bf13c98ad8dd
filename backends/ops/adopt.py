"""`adopt`: a path accepted within the round becomes drafted nodes, its bonus token too."""

from __future__ import annotations

from dataclasses import replace

import torch

from specplan.backends.ops.tensors.keys import child_keys, places_of
from specplan.backends.ops.tensors.trees import (
    at_or_below,
    first_columns,
    padded_to,
    selected,
    summed,
)
from specplan.backends.ops.tensors.values import Logits, Path, Tree
from specplan.ir.ops import Adopt
from specplan.ir.types.value_types import TreeType
from specplan.runtime.masks import first_true, marked
from specplan.runtime.sampling import SamplingSettings, probabilities


def adopt(
    op: Adopt,
    tree: Tree,
    path: Path,
    logits: Logits | None,
    *,
    settings: SamplingSettings,
    kind: TreeType,
) -> Tree:
    """The tree with the accepted path in place of all nodes that were judged.

    Args:
        op: the op.
        tree: the tree whose nodes below one node were judged.
        path: the accepted nodes and the bonus token.
        logits: logits of that node and of those below it, which the path's tokens count as drawn
            from; None makes the tokens given.
        settings: sampling settings of the requests.
        kind: type of the new tree, which bounds its nodes.
    """
    depth = path.nodes.shape[1]
    steps = torch.arange(depth, device=path.nodes.device)
    accepted = steps < path.accepted[:, None]
    nodes = path.nodes.where(accepted, 0)
    on_path = marked(nodes, accepted, tree.columns)
    top = torch.zeros_like(tree.live).scatter(1, path.start, True)
    judged = at_or_below(tree, top) & ~top
    places = torch.arange(tree.columns, device=nodes.device).expand_as(tree.parents)
    rank = torch.where(judged, places + tree.columns, places)
    stays = (tree.live & ~judged | on_path)[:, 1:]
    width = min(kind.nodes, tree.size + 1)
    order, live = first_columns(stays, min(width, tree.size), rank[:, 1:])
    left = selected(tree, order + 1, live, levels=tree.levels)

    count = (live.sum(1, keepdim=True) + 1).clamp(max=width)  # the bonus stands behind all
    above = path.start
    if depth:
        last = nodes.gather(1, (path.accepted - 1).clamp(min=0)[:, None])
        above = torch.where(path.accepted[:, None] > 0, last, path.start)
    parent = _place_of(tree, order + 1, above, count - 1)
    start = width + 1 - min(path.nodes.shape[1] + 1, width)
    left = _with_bonus(padded_to(left, width + 1), path, count, parent)
    adopted = replace(
        left,
        levels=tree.levels + 1,
        widest=tree.widest + 1,
        newest=range(start, width + 1),
        chain=kind.is_chain,
        in_order=kind.is_chain,
    )
    taken = torch.nn.functional.pad(on_path.gather(1, order + 1), (1, width - order.shape[1]))
    taken = taken.scatter(1, count, True) & adopted.live
    return _judged_by(adopted, taken, logits, settings)


def _with_bonus(tree: Tree, path: Path, column: torch.Tensor, parent: torch.Tensor) -> Tree:
    """The tree with the bonus token of a path as a node, dead where the path has none.

    Args:
        tree: has a free column for it.
        path: the accepted path.
        column: column of the new node, int64 `[B, 1]`.
        parent: column of its parent, int64 `[B, 1]`.
    """
    token = path.tokens.gather(1, (path.counts - 1).clamp(min=0)[:, None])
    bonus = {
        "tokens": token,
        "parents": parent,
        "depths": tree.depths.gather(1, parent) + 1,
        "live": (path.counts > path.accepted)[:, None],
        "keys": child_keys(tree.keys.gather(1, parent), token),
    }
    fields = {name: getattr(tree, name).scatter(1, column, new) for name, new in bonus.items()}
    return replace(tree, **fields)


def _place_of(
    tree: Tree, order: torch.Tensor, column: torch.Tensor, at_most: torch.Tensor
) -> torch.Tensor:
    """Where columns `[B, 1]` of the tree stand in the selected one; the root stays the root."""
    same = order == column
    place = first_true(same) + 1
    return torch.where(same.any(1, keepdim=True), place, 0).minimum(at_most)


def _judged_by(
    adopted: Tree, taken: torch.Tensor, logits: Logits | None, settings: SamplingSettings
) -> Tree:
    """The tree whose taken nodes count as drawn from the logits of their parents, else as given."""
    nothing = torch.full_like(adopted.probs_row, -1)
    if logits is None:
        drawn_from, own, probs = nothing, adopted.own, adopted.probs
        own = None if own is None else own.masked_fill(taken, 0.0)
    else:
        parents = adopted.keys.gather(1, adopted.parents)
        place, there = places_of(parents, logits.keys, logits.live)
        drawn_from = torch.where(there, place + adopted.probs_count, nothing)
        probs, own = (*adopted.probs, probabilities(logits.values, settings)), adopted.own
        if own is not None:
            logit = logits.values.log_softmax(2).flatten(1)
            logit = logit.gather(1, place * logits.values.shape[2] + adopted.tokens)
            own = torch.where(taken, logit.where(there, 0.0).to(own), own)
    return replace(
        adopted,
        probs=probs,
        probs_row=torch.where(taken, drawn_from, adopted.probs_row),
        own=own,
        scores=None if own is None else summed(adopted, own),
    )
