"""Closed forms of speculative decoding: how many tokens a round emits, and what that buys.

Every function takes drafted nodes without the root and gives emitted tokens with the bonus.
A tree is `parents` and `ranks` over its drafted nodes: `parents[i]` is -1 for a child of the
root, else an earlier node; `ranks[i]` is the 0-based order among siblings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from specplan.ir.types.value_types import depths_of

Hazard = Callable[[int, int], float]
"""(depth >= 1, rank >= 0) -> P(this child is the accepted one | its parent was accepted)."""


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per round of a chain: (1 - alpha^(gamma + 1)) / (1 - alpha).

    Source: Leviathan et al. 2022 (arXiv 2211.17192), equation 1.

    Args:
        alpha: acceptance probability of one drafted token, the same everywhere.
        gamma: drafted tokens.
    """
    if gamma == 0 or alpha <= 0.0:
        return 1.0
    if abs(1.0 - alpha) < 1e-12:
        return gamma + 1.0
    return -math.expm1((gamma + 1) * math.log(alpha)) / (1.0 - alpha)


def acceptance_of_tokens(tokens: float, gamma: int) -> float:
    """The alpha whose `expected_tokens` is `tokens`, by bisection; clipped to [0, 1]."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2.0
        if expected_tokens(middle, gamma) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def reach(parents: Sequence[int], ranks: Sequence[int], hazard: Hazard) -> list[float]:
    """Probability that each node is accepted: the product of hazards on its path.

    Source: positional acceptance of Sequoia (arXiv 2402.12374), section 3.1, by depth.
    """
    probabilities: list[float] = []
    for parent, rank, depth in zip(parents, ranks, depths_of(parents), strict=True):
        above = 1.0 if parent < 0 else probabilities[parent]
        probabilities.append(above * hazard(depth, rank))
    return probabilities


def tree_value(parents: Sequence[int], ranks: Sequence[int], hazard: Hazard) -> float:
    """F(T) = 1 + sum over nodes of the product of hazards on the path: tokens per round.

    Source: Sequoia (arXiv 2402.12374), section 3.1; the root contributes the 1.
    """
    return 1.0 + sum(reach(parents, ranks, hazard))


def accepted_at_least(
    parents: Sequence[int], ranks: Sequence[int], hazard: Hazard
) -> tuple[float, ...]:
    """P(at least d drafted tokens are accepted) for d = 1, 2, ... up to the tree's depth."""
    depths = depths_of(parents)
    levels = [0.0] * max(depths, default=0)
    for probability, depth in zip(reach(parents, ranks, hazard), depths, strict=True):
        levels[depth - 1] += probability
    return tuple(levels)


def expected_rounds(tokens: float, at_least: Sequence[float]) -> float:
    """Rounds until `tokens` are emitted, the last round cut at the limit.

    Renewal argument (Wald's identity with the stationary overshoot): N / m + E[X (X - 1)] /
    (2 m^2), X the tokens of a round and m its mean.

    Args:
        tokens: tokens to emit, N.
        at_least: P(at least d drafted tokens are accepted), d = 1, 2, ...
    """
    if tokens <= 0:
        return 0.0
    mean = 1.0 + sum(at_least)
    # E[X (X - 1)] = sum over x of 2 (x - 1) P(X >= x), and X >= x when x - 1 are accepted
    factorial = sum(2.0 * depth * p for depth, p in enumerate(at_least, start=1))
    return max(1.0, tokens / mean + factorial / (2.0 * mean * mean))
