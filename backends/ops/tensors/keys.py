"""Keys of nodes: hashes of the tokens on their paths, by which nodes of two trees are the same."""

from __future__ import annotations

from functools import cache

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
    key_sum = (key * _FACTOR + token) % _WORD
    return key_sum - _WORD if key_sum >= _WORD // 2 else key_sum


def keys_along(above: Tensor, tokens: Tensor) -> Tensor:
    """Keys of the nodes of paths, int64 `[..., W]`, below nodes with keys `[..., 1]`.

    A key is a sum of what stands above it, each times a power of the factor. In graphs one key
    follows from the other, as ONNX Runtime sums whole numbers as doubles.
    """
    if torch.compiler.is_exporting():
        keys = [above[..., :0]]
        for step in range(tokens.shape[-1]):
            above = child_keys(above, tokens[..., step : step + 1])
            keys.append(above)
        return torch.cat(keys, -1)
    width = tokens.shape[-1]
    weights = torch.tensor(_weights(width), dtype=torch.int64, device=tokens.device)
    line = torch.cat([above, tokens], -1)
    return (line[..., None, :] * weights.view(width, 1 + width)).sum(-1)


@cache
def _weights(width: int) -> list[list[int]]:
    """What each token of a path, and the key above it, adds to each of its keys."""
    powers = [pow(_FACTOR, exponent, _WORD) for exponent in range(width + 1)]
    powers = [power - _WORD if power >= _WORD // 2 else power for power in powers]
    return [
        [powers[row + 1 - column] if column <= row + 1 else 0 for column in range(1 + width)]
        for row in range(width)
    ]


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
