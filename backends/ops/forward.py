"""`forward`: the slots of drafted nodes in a cache, and what each token of a pass sees.

A pass has columns of text, ending with the root, and columns of drafted nodes. Text stands in the
slot of its position; drafted nodes stand behind the text in the order in which they were run first.
A node that runs again, in other layers or once more, keeps its slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.ops.values import Nodes


def joined_keys(operands: tuple[Nodes, ...]) -> tuple[Tensor, Tensor]:
    """Keys of all nodes of a pass, int64 `[B, W]`, and which of them live, roots left out."""
    keys = [nodes.keys for nodes in operands]
    live = [drafted(nodes) for nodes in operands]
    if len(operands) == 1:
        return keys[0], live[0]
    return torch.cat(keys, 1), torch.cat(live, 1)


def drafted(nodes: Nodes) -> Tensor:
    """Which of some nodes live and are not the root, bool `[B, W]`."""
    return nodes.live & (nodes.columns > 0) if nodes.root else nodes.live


def lines_of(operands: tuple[Nodes, ...]) -> tuple[Tensor, Tensor]:
    """Keys of the nodes of a pass and their ancestors, int64 `[B, W, L]`, and which are roots."""
    levels = max(1, *(nodes.tree.levels for nodes in operands))
    keys, roots = [], []
    for nodes in operands:
        lines = nodes.tree.lines(nodes.columns)
        if lines.shape[2] < levels:
            more = (0, levels - lines.shape[2])
            lines = torch.nn.functional.pad(lines, more)  # roots
        flat = lines.flatten(1)
        keys.append(nodes.tree.keys.gather(1, flat).view_as(lines))
        roots.append(lines == 0)
    if len(operands) == 1:
        return keys[0], roots[0]
    return torch.cat(keys, 1), torch.cat(roots, 1)


def visible(lines: Tensor, roots: Tensor, known: Tensor, ran: Tensor) -> tuple[Tensor, Tensor]:
    """What nodes see of drafted ones.

    Args:
        lines: keys of the nodes and their ancestors, int64 `[B, W, L]`.
        roots: bool `[B, W, L]`.
        known: keys by slot, int64 `[B, M]`.
        ran: which slots hold what these layers can attend to, bool `[B, M]`.

    Returns:
        Bool `[B, W, M]`, and bool `[B, W]`: whether all ancestors are there.
    """
    same = (lines[:, :, :, None] == known[:, None, None, :]) & ran[:, None, None, :]
    return same.any(2), (same.any(3) | roots).all(2)


def attention_mask(
    slots: Tensor, texts: int, ends: Tensor, seen: Tensor | None, used: int
) -> Tensor:
    """Bool `[B, T, U]`: text up to oneself, and for nodes all text and what they see of nodes.

    Args:
        slots: of all columns, those of text first, int64 `[B, T]`.
        texts: columns of text.
        ends: slots of text, int64 `[B, 1]`.
        seen: bool `[B or 1, W, M]`, see `visible`; None where nodes see all up to their own slot.
        used: slots that are attended to, U.
    """
    keys = torch.arange(used, device=slots.device)
    if seen is None:
        return keys <= slots[:, :, None]
    place = keys - ends
    behind = (place < seen.shape[2]) & (place >= 0)
    clamped = place.clamp(0, seen.shape[2] - 1)[:, None, :].expand(-1, seen.shape[1], -1)
    found = seen.expand(len(slots), -1, -1).gather(2, clamped)
    nodes = found & behind[:, None, :] | (place < 0)[:, None, :]
    return torch.cat([keys <= slots[:, :texts, None], nodes], 1) if texts else nodes
