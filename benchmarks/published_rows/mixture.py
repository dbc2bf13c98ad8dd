"""Chains whose acceptance differs from context to context: a Beta mixture, in closed form."""

from __future__ import annotations


def beta_tokens(alpha: float, gamma: int, correlation: float) -> float:
    """Tokens per round, bonus included, of a chain whose acceptance is Beta distributed.

    E = 1 + sum over depths of E[A^depth], A ~ Beta with mean `alpha`; moments of a Beta are
    products of (a + i) / (a + b + i).

    Args:
        alpha: mean acceptance of a drafted token.
        gamma: drafted tokens.
        correlation: of two acceptances in one round, 1 / (a + b + 1); 0 is one alpha everywhere,
            1 accepts a round whole or not at all.
    """
    if correlation >= 1.0:
        return 1.0 + gamma * alpha
    spread = correlation / (1.0 - correlation)  # 1 / (a + b)
    reached, tokens = 1.0, 1.0
    for depth in range(gamma):
        reached *= (alpha + depth * spread) / (1.0 + depth * spread)
        tokens += reached
    return tokens


def correlation_of_tokens(tokens: float, alpha: float, gamma: int) -> float:
    """The correlation at which `beta_tokens` are `tokens`, by bisection; clipped to [0, 1]."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if beta_tokens(alpha, gamma, middle) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
