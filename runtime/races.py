"""Draws by exponential races, so that two distributions sampled with one number mostly agree.

Token x gets the time E(x) / p(x), with E(x) = -ln U(x); the first in the race is drawn. That is
the Gumbel trick, argmax of ln p(x) - ln E(x). All U(x) are made from one uniform number by a
hash, so that whoever knows the number runs the same race.
"""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = (1 << 32) - 1


def exponentials(numbers: Tensor, vocabulary: int) -> Tensor:
    """E(x) of every token.

    Two 32-bit words per token, hashed from the token and the number's 53 bits, make a U(x) of 53
    bits. The hash has no overflow: all factors are below 2^31.

    Args:
        numbers: float64 `[...]` in [0, 1), multiples of 2^-53.
        vocabulary: V.

    Returns:
        float64 `[..., V]`, positive.
    """
    bits = (numbers.double() * 2.0**53).long()[..., None]
    high, low = bits >> 21, bits & ((1 << 21) - 1)
    tokens = torch.arange(vocabulary, device=numbers.device)
    first, second = (_mix(_mix(_mix(2 * tokens + word) ^ high) ^ low) for word in (0, 1))
    middles = (first.double() * 2.0**21 + (second >> 11).double() + 0.5) * 2.0**-53
    return -torch.log(middles.clamp(max=1.0 - 2.0**-53))


def _mix(value: Tensor) -> Tensor:
    """A bijection of 32-bit integers held in int64.

    Source: the `lowbias32` family of github.com/skeeto/hash-prospector (public domain), with the
    constants 0x21f0aaad and 0x735a2d97.
    """
    value = value ^ (value >> 16)
    value = (value * 0x21F0AAAD) & _WORD
    value = value ^ (value >> 15)
    value = (value * 0x735A2D97) & _WORD
    return value ^ (value >> 15)


def race(probs: Tensor, times: Tensor, count: int = 1) -> Tensor:
    """The first tokens of a race.

    Args:
        probs: `[..., V]`, non-negative, not all zero; need not sum to 1.
        times: E(x), `[..., V]`.
        count: number of tokens; beyond the support they are uniform over the other tokens.

    Returns: int64 `[..., count]`; the first is drawn from the distribution, the next from what it
        leaves.
    """
    arrival = torch.where(probs > 0, times / probs.double().clamp(min=1e-150), times * 1e200)
    if count == 1:
        return arrival.argmin(-1, keepdim=True)
    return arrival.topk(count, dim=-1, largest=False).indices
