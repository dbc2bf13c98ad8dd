"""Sampling by exponential races: two distributions sampled with one number mostly agree.

Every token x arrives at an exponential time of rate p(x), and the first is drawn. Two ways to make
the times couple distributions. `gumbel`: E(x) / p(x), with E(x) = -ln U(x), which is the Gumbel
trick, argmax of ln p(x) - ln E(x). `minhash`: consistent weighted sampling (Ioffe 2010, Improved
Consistent Sampling, Weighted Minhash and L1 Sketching, section 3), where a token whose probability
changes keeps its time until that probability crosses one of a random series of steps, so that two
distributions agree with the probability of their overlap over their union at least. All U(x) are
made from one uniform number by a hash, so that whoever knows the number runs the same race.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_WORD = (1 << 32) - 1
LEAST = 1e-37
"""Least probability: runtimes that hold constants in float32 know it."""
NEVER = 1e3
"""Added to the logarithm of a time: later than every token of the support."""


def exponentials(numbers: Tensor, vocabulary: int, series: int = 0) -> Tensor:
    """E(x) of every token.

    Two 32-bit words per token, hashed from the token and the number's 53 bits, make a U(x) of 53
    bits. The hash has no overflow: all factors are below 2^31.

    Args:
        numbers: float64 `[...]` in [0, 1), multiples of 2^-53.
        vocabulary: V, below 2^25.
        series: below 64; each gives other times of the same numbers.

    Returns:
        float64 `[..., V]`, positive.
    """
    bits = (numbers.double() * 2.0**53).long()[..., None]
    high, low = bits >> 21, bits & ((1 << 21) - 1)
    tokens = torch.arange(vocabulary, device=numbers.device) + (series << 25)
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
    """The first tokens of a race, by the logarithms of their arrivals.

    Args:
        probs: `[..., V]`, non-negative, not all zero; need not sum to 1.
        times: E(x), `[..., V]`.
        count: number of tokens; beyond the support they are uniform over the other tokens.

    Returns: int64 `[..., count]`; the first is drawn from the distribution, the next from what it
        leaves.
    """
    late = times.log()
    arrival = torch.where(probs > 0, late - probs.double().clamp(min=LEAST).log(), late + NEVER)
    return _first(arrival, count)


def _first(arrival: Tensor, count: int) -> Tensor:
    if count == 1:
        return arrival.argmin(-1, keepdim=True)
    return arrival.topk(count, dim=-1, largest=False).indices


def steps(numbers: Tensor, vocabulary: int) -> Tensor:
    """The random series of steps of every token: r, c and beta of Ioffe's algorithm.

    Args:
        numbers: float64 `[...]` in [0, 1), multiples of 2^-53.
        vocabulary: V.

    Returns:
        float64 `[..., V, 3]`: r and c, of the distribution Gamma(2, 1), and beta, uniform.
    """
    times = [exponentials(numbers, vocabulary, series) for series in range(1, 6)]
    return torch.stack([times[0] + times[1], times[2] + times[3], torch.exp(-times[4])], -1)


def consistent(probs: Tensor, noise: Tensor, count: int = 1) -> Tensor:
    """The first tokens by consistent weighted sampling.

    Args:
        probs: `[..., V]`, non-negative, not all zero, of sum 1.
        noise: what `steps` gives, `[..., V, 3]`.
        count: number of tokens; beyond the support they are uniform over the other tokens.

    Returns: int64 `[..., count]`; the first is drawn from the distribution, the next from what it
        leaves, since the time of a token is exponential of rate p(x).
    """
    width, time, shift = noise.unbind(-1)
    level = torch.floor(probs.double().clamp(min=LEAST).log() / width + shift)
    arrival = time.log() - width * (level - shift) - width
    arrival = torch.where(probs > 0, arrival, time.log() + NEVER)
    return _first(arrival, count)


COUPLINGS: Mapping[str, tuple[Callable[..., Tensor], Callable[[Tensor, Tensor, int], Tensor]]] = {
    "shared": (exponentials, race),
    "minhash": (steps, consistent),
}
"""By `grow how=`: the noise of numbers, and the first tokens of a race with that noise."""


def drawn_alike(how: str, probs: Tensor, numbers: Tensor, count: int = 1) -> Tensor:
    """The first tokens of a race whose noise is made of one number.

    Args:
        how: `shared` (Gumbel noise) or `minhash`, as `grow how=` has it.
        probs: `[..., V]`.
        numbers: `[...]`.
        count: number of tokens.

    Returns: int64 `[..., count]`.
    """
    noise, first = COUPLINGS[how]
    return first(probs, noise(numbers, probs.shape[-1]), count)
