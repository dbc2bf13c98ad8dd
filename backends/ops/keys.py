"""Keys of nodes: hashes of the tokens on their paths, by which nodes of two trees are the same."""

from __future__ import annotations

import torch
from torch import Tensor

_FACTOR = 0x2545F4914F6CDD1D
"""Odd, so that a step of the hash loses nothing: Vigna 2016, "An experimental exploration of
Marsaglia's xorshift generators"."""
_WORD = 1 << 64
NO_KEY = 0
"""The key of what is no node."""
FIRST_KEY = 0x1B873593
"""The key of the empty path."""


def child_keys(parents: Tensor, tokens: Tensor) -> Tensor:
    """Keys of nodes with these tokens below nodes with these keys, int64 of one shape."""
    return tokens + parents * _FACTOR  # as `alpha` of `add`, ONNX takes it for a float


def key_after(key: int, token: int) -> int:
    """`child_keys` of one node, on the host."""
    found = (key * _FACTOR + token) % _WORD
    return found - _WORD if found >= _WORD // 2 else found


def keys_along(above: Tensor, tokens: Tensor) -> Tensor:
    """Keys of the nodes of one path, int64 `[B, W]`, below nodes with keys `[B, 1]`.

    One by one: a sum of products would be one op, but ONNX Runtime sums whole numbers as doubles.
    """
    keys = [above[:, :0]]
    for step in range(tokens.shape[1]):
        above = child_keys(above, tokens[:, step : step + 1])
        keys.append(above)
    return torch.cat(keys, 1)


def places_of(keys: Tensor, known: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Where nodes stand among others.

    Args:
        keys: of the nodes, int64 `[B, W]`.
        known: of the others, int64 `[B, M]`.
        there: which of them count, bool `[B, M]`.

    Returns:
        The first place with each node's key, int64 `[B, W]`, any where there is none; and whether
        there is one, bool `[B, W]`.
    """
    if not known.shape[1]:
        return torch.zeros_like(keys), torch.zeros_like(keys, dtype=torch.bool)
    same = (keys[:, :, None] == known[:, None, :]) & there[:, None, :]
    width = known.shape[1]
    first = torch.arange(width, device=keys.device).where(same, width).amin(2)
    return first.clamp(max=width - 1), first < width
