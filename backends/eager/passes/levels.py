"""Looking ahead: slots below nodes, which run through the layers and which nothing else sees.

A slot is a node whose token nobody knows. Its key is made of a number that is no token, so that it
is never emitted, and its states are looked up by the node that it stands below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import extended
from specplan.backends.ops.tensors.values import Nodes

SLOT = -1
"""Stands for a token that nobody knows."""


@dataclass(frozen=True)
class Slots:
    """The last columns of a pass: all nodes' slots of one level, then those of the next.

    Attributes:
        below: columns of the nodes that they stand below, int64 `[B, W]`.
        levels: how many below each node.
    """

    below: Tensor
    levels: int

    @property
    def width(self) -> int:
        """How many columns."""
        return self.levels * self.below.shape[1]

    def of(self, fields: Tensor, level: int) -> Tensor:
        """What tensors `[B, T, ...]` say of the slots of one level, `[B, W, ...]`."""
        each = self.below.shape[1]
        start = fields.shape[1] - self.width + (level - 1) * each
        return fields[:, start : start + each]

    def aligned(self, fields: Tensor, level: int) -> Tensor:
        """The same in the columns of their nodes, 0 elsewhere: `[B, T - slots, ...]`."""
        aligned = torch.zeros_like(fields[:, : fields.shape[1] - self.width])
        return aligned.scatter(1, self.wide(fields), self.of(fields, level))

    def wide(self, fields: Tensor) -> Tensor:
        """The columns of the nodes, as an index into tensors `[B, T, ...]`."""
        if fields.dim() == 2:
            return self.below
        return self.below[:, :, None].expand(-1, -1, fields.shape[2])


def slots_of(nodes: Nodes, levels: int) -> Nodes:
    """Slots below some nodes, level by level."""
    tree, above, live = nodes.tree, nodes.columns, nodes.live
    for _ in range(levels):
        tree = extended(tree, above, torch.full_like(above, SLOT), live)
        start = tree.columns - nodes.width
        above = torch.arange(start, tree.columns, device=above.device).expand_as(above)
    tree = replace(tree, tokens=tree.tokens.clamp(min=0))  # models embed tokens
    return Nodes(tree, range(nodes.tree.columns, tree.columns), root=False)


def columns_of(operands: Sequence[Nodes], inner: Sequence[Nodes], texts: int) -> Tensor:
    """Where the nodes of all operands stand in a pass, int64 `[B, W]`.

    Args:
        operands: nodes; the root is the last column of text.
        inner: the same without the root, as they stand behind the text.
        texts: columns of text.
    """
    columns, start = [], texts
    for nodes, drafted in zip(operands, inner, strict=True):
        place = torch.arange(start, start + drafted.width, device=nodes.columns.device)
        place = place.expand(len(nodes.columns), -1)
        if drafted.width < nodes.width:
            place = torch.cat([torch.full_like(nodes.columns[:, :1], texts - 1), place], 1)
        elif nodes.root:
            place = place.where(nodes.columns > 0, texts - 1)
        columns.append(place)
        start += drafted.width
    return torch.cat(columns, 1)
