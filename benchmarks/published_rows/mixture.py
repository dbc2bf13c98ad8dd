"""Acceptance that varies from round to round, by its mean and its correlation."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.cost_models.acceptance.evidence.mixture import BetaMixture, MixtureModel
from specplan.cost_models.acceptance.model import Shape

ALIKE = 1e-6
"""A correlation below this is none: every round alike."""


def law_of(alpha: float, correlation: float, others: Sequence[float] = ()) -> MixtureModel:
    """A Beta mixture.

    Args:
        alpha: mean acceptance of a first choice.
        correlation: of two acceptances in one round, 1 / (a + b + 1), below 1; 0 is one
            acceptance everywhere.
        others: shares of the misses that further ranks take.
    """
    spread = max(correlation, ALIKE)
    concentration = (1.0 - spread) / spread
    mean = min(max(alpha, 1e-9), 1.0 - 1e-9)
    mixture = BetaMixture.of(mean * concentration, (1.0 - mean) * concentration, others=others)
    return MixtureModel(mixture)


def beta_tokens(alpha: float, gamma: int, correlation: float) -> float:
    """Tokens per round of a chain of `gamma` drafted tokens, bonus included."""
    if gamma < 1:
        return 1.0
    chain = Shape.of(tuple(range(-1, gamma - 1)), (0,) * gamma)
    return 1.0 + float(law_of(alpha, correlation).reach(chain).sum())


def correlation_of_tokens(tokens: float, alpha: float, gamma: int) -> float:
    """The correlation at which `beta_tokens` are `tokens`, by bisection; clipped to [0, 0.999]."""
    low, high = 0.0, 0.999
    for _ in range(40):
        middle = (low + high) / 2.0
        if beta_tokens(alpha, gamma, middle) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
