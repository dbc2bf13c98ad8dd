"""`forward`: the slots of drafted nodes in a cache, and what each token of a pass sees.

A pass has columns of text, ending with the root, and columns of drafted nodes. Text stands in the
slot of its position; drafted nodes stand behind the text in the order in which they were run first.
A node that runs again, in other layers or once more, keeps its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.backends.ops.tensors.keys import places_of
from specplan.backends.ops.tensors.values import Nodes
from specplan.runtime.masks import marked


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the drafted nodes of a pass stand, and what they see.

    Attributes:
        offsets: slots counted from the text's end, int64 `[B, W]`; -1 of the root.
        seen: drafted nodes that each one sees, by slot, bool `[B, W, M + W]`.
        live: which of the nodes can run, bool `[B, W]`.
        keys: of all slots now, int64 `[B, M + W]`.
        first: which of the new slots hold the first node of their key, bool `[B, W]`.
    """

    offsets: Tensor
    seen: Tensor
    live: Tensor
    keys: Tensor
    first: Tensor


def forward(
    nodes: Sequence[Nodes],
    live: Tensor,
    known: Tensor,
    there: Tensor,
    ran: Tensor,
    *,
    reaching: bool = True,
    rooted: bool = False,
    fresh: bool = False,
) -> Placed:
    """Slots of nodes, and what they see of nodes.

    Args:
        nodes: that run, of one tree each; the root stands in the last slot of the text.
        live: which of them may run, bool `[B, W]`.
        known: keys by slot, int64 `[B, M]`.
        there: which slots are the first of their key, bool `[B, M]`.
        ran: which of them hold what the layers that run can attend to, bool `[B, M]`.
        reaching: nodes whose ancestors are not all there do not run.
        rooted: the root may be among them.
        fresh: none of them has a slot, and no two are the same.
    """
    keys = nodes[0].keys if len(nodes) == 1 else torch.cat([each.keys for each in nodes], 1)
    before, width = known.shape[1], keys.shape[1]
    known = torch.cat([known, keys], 1) if before else keys
    offsets = torch.arange(before, before + width, device=keys.device).expand_as(keys)
    inner = first = live & (nodes[0].columns > 0) if rooted else live
    if not fresh:
        new, may = offsets, torch.cat([there, inner], 1) if before else inner
        offsets, _ = places_of(keys, known, may)
        first = inner & (offsets == new)
    now = torch.cat([ran, first], 1) if before else first
    if before and ran is not there and not fresh:  # nodes that other layers ran have slots already
        now = now | marked(offsets, inner, before + width)
    seen, reached = visible(*lines_of(nodes), known, now)
    if reaching:
        live, first = live & reached, first & reached
    if rooted:
        offsets = offsets.where(inner, -1)
    return Placed(offsets, seen, live, known, first)


def drafted(nodes: Nodes) -> Tensor:
    """Which of some nodes live and are not the root, bool `[B, W]`."""
    return nodes.live & (nodes.columns > 0) if nodes.root else nodes.live


def lines_of(operands: Sequence[Nodes]) -> tuple[Tensor, Tensor]:
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
    slots: Tensor, texts: int, ends: Tensor, seen: Tensor | None, keys: Tensor
) -> Tensor:
    """Bool `[B, T, U]`: text up to oneself, and for nodes all text and what they see of nodes.

    Args:
        slots: of all columns, those of text first, int64 `[B, T]`.
        texts: columns of text.
        ends: slots of text, int64 `[B, 1]`.
        seen: bool `[B or 1, W, M]`, see `visible`; None where nodes see all up to their own slot.
        keys: the slots that are attended to, `0 .. U - 1`.
    """
    if seen is None:
        return keys <= slots[:, :, None]
    place = keys - ends
    behind = (place < seen.shape[2]) & (place >= 0)
    clamped = place.clamp(0, seen.shape[2] - 1)[:, None, :].expand(-1, seen.shape[1], -1)
    seen_by_slot = seen.expand(len(slots), -1, -1).gather(2, clamped)
    nodes = seen_by_slot & behind[:, None, :] | (place < 0)[:, None, :]
    return torch.cat([keys <= slots[:, :texts, None], nodes], 1) if texts else nodes
