"""Drafted nodes as columns of one pass: their slots, depths and tokens, and what each one sees.

Where requests run the same nodes of one shape, offsets and the ancestor mask are constants; where a
choice by score made them differ, both are gathered per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from specplan.backends.reference.slots import Layers, NodeSlots
from specplan.backends.reference.values import Nodes, Rows, Tree, per_request
from specplan.ir.types import ROOT


def node_columns(
    nodes: Nodes, slots: NodeSlots, layers: Layers, scratch: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Slot offsets and depths, `[W]` or `[B, W]`, and tokens `[B, W]` of drafted nodes.

    Those that no layer has run get slots.
    """
    tree, drafted, device = nodes.tree, nodes.drafted, nodes.tree.tokens.device
    if nodes.own:
        own = per_request(drafted, tree.tokens)
        numbers = tree.numbers_of(own)
        slots.place_own(numbers, tree.highest, layers, scratch)
        depths = per_request(tree.depths, tree.tokens).gather(1, own)
        return slots.slots_of(numbers), depths, tree.tokens.gather(1, own)
    assert isinstance(drafted, tuple) and isinstance(tree.depths, tuple)
    shared = tree.numbered(drafted)
    slots.place(shared, layers, scratch)
    offsets = torch.tensor(
        [slots.offsets[number] for number in shared], dtype=torch.int64, device=device
    )
    depths = torch.tensor([tree.depths[node] for node in drafted], dtype=torch.int64, device=device)
    if drafted == tuple(range(tree.size)):
        return offsets, depths, tree.tokens
    chosen = torch.tensor(drafted, dtype=torch.int64, device=device)
    return offsets, depths, tree.tokens.index_select(1, chosen)


def attention_mask(
    trees: Sequence[Nodes],
    cached: NodeSlots,
    columns: Tensor,
    texts: int,
    lengths: Tensor,
    keys: Tensor,
) -> Tensor:
    """Bool `[B, T, U]`: text up to oneself, and for nodes their ancestors and themselves.

    On a chain whose nodes stand in order a slot is a position, and both are "slots up to mine".

    Args:
        trees: nodes that run, of one tree each; they have slots.
        cached: the cache's.
        columns: slots `[B, T]` of the pass, those of text first.
        texts: columns of text.
        lengths: of the texts, int64 `[B, 1]`.
        keys: the slots attended to, `0 .. U - 1`.
    """
    visible = keys <= columns[:, :, None]
    parts, stop = [visible[:, :texts]], texts
    for nodes in trees:
        start, stop = stop, stop + nodes.width
        if nodes.own:
            parts.append(_own_lines(nodes, cached, lengths, keys))
        elif not _in_order(nodes, cached):
            parts.append(_shared_lines(nodes, cached, lengths, keys))
        elif len(trees) == 1:
            return visible
        else:
            parts.append(visible[:, start:stop])
    return torch.cat(parts, 1)


def window_mask(
    trees: Sequence[Nodes],
    cached: NodeSlots,
    offsets: Sequence[Tensor],
    texts: int,
    lengths: Tensor,
) -> Tensor:
    """Bool `[B or 1, T, W]`: the same of the slots from a pass's first text column on.

    All tokens of a pass see what is before; so this is the mask of texts of that many columns. One
    row serves all requests that run the same nodes.

    Args:
        trees: see `attention_mask`.
        cached: see `attention_mask`.
        offsets: slots of each tree's nodes, counted from the text's end, `[W]` or `[B, W]`.
        texts: columns of text.
        lengths: of the texts, int64 `[B, 1]`.
    """
    rows = len(lengths) if any(nodes.own for nodes in trees) else 1
    ends = lengths.new_full((rows, 1), texts)
    text = torch.arange(texts, device=lengths.device).expand(rows, -1)
    columns = torch.cat([text, *(ends + places for places in offsets)], 1)
    keys = torch.arange(texts + cached.taken, device=lengths.device)
    return attention_mask(trees, cached, columns, texts, ends, keys)


def numbers_of_all(trees: Sequence[Nodes]) -> list[int]:
    """The round's numbers of nodes that all requests share."""
    return [
        number
        for nodes in trees
        if isinstance(nodes.drafted, tuple)
        for number in nodes.tree.numbered(nodes.drafted)
    ]


def rows_of_each(trees: Sequence[Nodes], with_root: bool, logits: Tensor) -> list[Rows]:
    """Rows of the nodes of each tree, from those of the drafted ones and perhaps the root."""
    if len(trees) == 1:
        return [rows_of(trees[0], with_root, logits)]
    found, stop = [], int(with_root)
    for nodes in trees:
        start, stop = stop, stop + nodes.width
        own = logits[:, start:stop]
        if with_root:
            own = torch.cat([logits[:, :1], own], 1)
        found.append(rows_of(nodes, with_root, own))
    return found


def rows_of(nodes: Nodes, with_root: bool, logits: Tensor) -> Rows:
    """Rows of the nodes, in their order, from those of the drafted ones and perhaps the root."""
    if isinstance(nodes.drafted, Tensor):
        return Rows(logits[:, 1:] if with_root else logits, nodes.indices)
    rows = Rows(logits, (ROOT, *nodes.drafted) if with_root else nodes.drafted)
    return Rows(rows.of(nodes.indices), nodes.indices)


def _own_lines(nodes: Nodes, cached: NodeSlots, lengths: Tensor, keys: Tensor) -> Tensor:
    """Bool `[B, W, U]`: what each request's own nodes see, the text and their ancestors."""
    tree = nodes.tree
    lines = tree.lines(per_request(nodes.drafted, tree.tokens))
    slots = lengths[:, :, None] + cached.slots_of(tree.numbers_of(lines))
    seen = (keys < lengths[:, :, None]).repeat(1, lines.shape[1], 1)
    return seen.scatter_(2, slots, True)


def _shared_lines(nodes: Nodes, cached: NodeSlots, lengths: Tensor, keys: Tensor) -> Tensor:
    """The same of nodes that all requests share."""
    tree, drafted = nodes.tree, nodes.drafted
    assert isinstance(drafted, tuple)
    lines = tuple(
        tuple(cached.offsets[a] for a in tree.numbered(tree.ancestors(node))) for node in drafted
    )
    matrix = _ancestor_matrix(lines, cached.taken, keys.device)
    place = keys - lengths
    drafts = matrix[:, place.clamp(0, cached.taken - 1)].transpose(0, 1)
    return drafts & (place < cached.taken)[:, None] | (place < 0)[:, None]


def _in_order(nodes: Nodes, cached: NodeSlots) -> bool:
    """True when every node and its ancestors live in the slots of their depths: a chain."""
    tree, drafted = nodes.tree, nodes.drafted
    assert isinstance(tree.depths, tuple) and isinstance(drafted, tuple)
    return all(_in_place(tree, cached, above) for node in drafted for above in tree.ancestors(node))


def _in_place(tree: Tree, cached: NodeSlots, node: int) -> bool:
    assert isinstance(tree.depths, tuple)
    (number,) = tree.numbered([node])
    return cached.offsets.get(number) == tree.depths[node] - 1


def _ancestor_matrix(seen: tuple[tuple[int, ...], ...], width: int, device: torch.device) -> Tensor:
    """Bool `[W, width]` from the offsets that each node sees.

    What is remembered is no tensor: one that is made while a round is traced belongs to the trace.
    It is made on the device: a captured round cannot copy it there.
    """
    return torch.tensor(_ancestor_rows(seen, width), device=device)


@cache
def _ancestor_rows(seen: tuple[tuple[int, ...], ...], width: int) -> list[list[bool]]:
    return [[offset in offsets for offset in range(width)] for offsets in seen]
