"""Texts looked up in themselves: on the host before the call, a chain of nodes inside it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.looking import continued, wanted_of
from specplan.backends.reference.values import Tree
from specplan.ir.ops import Lookup
from specplan.ir.types import ROOT


def search(op: Lookup, text: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What followed the texts' last tokens earlier in them.

    Args:
        op: how long a match may be, and its continuation.
        text: int64 `[B, S]`.
        lengths: of the texts, int64 `[B]`, on the CPU.

    Returns:
        Tokens `[B, length]` and how many of them were found `[B]`, on the CPU.
    """
    tokens, counts = continued(text.cpu().numpy(), lengths.numpy(), wanted_of(op, 1))
    return torch.from_numpy(tokens), torch.from_numpy(counts)


def looked_up(tree: Tree, found: Tensor, counts: Tensor) -> Tree:
    """A chain of tokens `[B, L]` in place of the empty tree; the first `counts` `[B]` are live."""
    length = found.shape[1]
    return replace(
        tree,
        tokens=found,
        parents=(ROOT, *range(length - 1)),
        depths=tuple(range(1, length + 1)),
        live=torch.arange(length, device=found.device) < counts[:, None],
        law_index=(-1,) * length,
        newest=tuple(range(length)),
        levels=length,
        widest=1,
    )
