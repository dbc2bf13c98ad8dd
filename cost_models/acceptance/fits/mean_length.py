"""Acceptance from one mean length: many models fit it, and the interval spans them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.evidence.mixture import BetaMixture
from specplan.cost_models.acceptance.fits.counts import ASSUMED_ROUNDS
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.formulas.closed_forms import acceptance_of_tokens
from specplan.ir.errors import UsageError

Floats = NDArray[np.float64]
MEMBERS = 100
"""Mixtures that one mean length or one prior is given as."""


@dataclass(frozen=True)
class Spread:
    """Which mixtures are possible for one mean length: a prior between stated bounds.

    Attributes:
        least_concentration: a + b of the Beta over contexts, logarithmically uniform from here
            (contexts differ a lot: hazards rise with depth) ...
        most_concentration: ... to here (all alike: one alpha).
        least_decay: factor by which the draft weakens a level, from here to 1, the root of its
            distance from 1 uniform. The golden curves of InferenceX, which these bounds were
            set by, lie between 0.7 (a head trained for one token) and 1.
    """

    least_concentration: float = 4.0
    most_concentration: float = 400.0
    least_decay: float = 0.7


def fit_mean_length(
    length: float,
    draft_tokens: int,
    key: AcceptanceKey,
    *,
    rounds: float | None = None,
    spread: Spread | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> AcceptanceProfile:
    """Beta mixtures, equally likely, that all have this mean length at this draft length.

    Args:
        length: mean tokens per round at `draft_tokens`, the bonus counted.
        draft_tokens: length of the drafted chain.
        key: what the profile is about.
        rounds: behind the mean; `ASSUMED_ROUNDS` when nobody said.
        spread: which mixtures are possible; the default's when None.
        provenance: how the mean came about.

    Returns:
        A mixture that is sure of `draft_tokens` as far as `rounds` go, and less of other lengths.

    Raises:
        UsageError: the length cannot be that of such a chain.
    """
    _check(length, draft_tokens, key)
    prior, behind = spread or Spread(), rounds or ASSUMED_ROUNDS
    grid = (np.arange(MEMBERS) + 0.5) / MEMBERS
    error = np.array([NormalDist().inv_cdf(share) for share in grid])
    lengths = np.clip(
        length + _deviation(length, draft_tokens) / behind**0.5 * error,
        1.0 + 1e-3,
        draft_tokens + 1.0 - 1e-3,
    )
    facts = {
        **(provenance or {}),
        "rounds": behind,
        "rounds_assumed": not rounds,
        "mean_length": length,
        "draft_tokens": draft_tokens,
        "spread": asdict(prior),
    }
    mixture = BetaMixture(mixture_members(lengths, draft_tokens, prior), (), behind)
    return AcceptanceProfile(key, mixture, provenance=facts)


def mixture_members(
    lengths: Floats, draft_tokens: int, spread: Spread
) -> tuple[tuple[float, float, float], ...]:
    """One Beta mixture (a, b, decay) for each mean length, over what `spread` leaves possible.

    Args:
        lengths: mean tokens per round at `draft_tokens`, rising, [members].
        draft_tokens: length of the drafted chain.
        spread: which mixtures are possible.
    """
    count = len(lengths)
    grid = (np.arange(count) + 0.5) / count  # a Latin hypercube: each axis evenly filled
    rng = np.random.default_rng(0)
    low, high = np.log(spread.least_concentration), np.log(spread.most_concentration)
    concentration = np.exp(low + (high - low) * rng.permutation(grid))
    decay = 1.0 - (1.0 - spread.least_decay) * rng.permutation(grid) ** 2
    decay = np.where(_tokens(1.0 - 1e-6, concentration, decay, draft_tokens) > lengths, decay, 1.0)
    first = _first_choices(lengths, concentration, decay, draft_tokens)
    members = zip(first * concentration, (1.0 - first) * concentration, decay, strict=True)
    return tuple((float(a), float(b), float(c)) for a, b, c in members)


def _check(length: float, draft_tokens: int, key: AcceptanceKey) -> None:
    if draft_tokens < 1 or not 1.0 <= length <= draft_tokens + 1.0:
        raise UsageError(
            f"a mean acceptance length of {length:g} is not possible with {draft_tokens} drafted "
            "tokens",
            where=f"acceptance of {key.drafter}",
            remedy=f"It counts the bonus token, and lies in [1, {draft_tokens + 1}].",
        )


def _deviation(length: float, draft_tokens: int) -> float:
    """Standard deviation of the tokens of a round, under one alpha."""
    alpha = acceptance_of_tokens(length, draft_tokens)
    depths = np.arange(1, draft_tokens + 1)
    mean, square = (alpha**depths).sum(), ((2 * depths - 1) * alpha**depths).sum()
    return float(max(square - mean**2, 0.0) ** 0.5)


def _tokens(
    first: Floats | float, concentration: Floats, decay: Floats, draft_tokens: int
) -> Floats:
    """Tokens per round of chains, by member; moments as in `acceptance.mixture`."""
    reached, total = np.ones_like(concentration), np.ones_like(concentration)
    for depth in range(draft_tokens):
        rising = (first * concentration + depth) / (concentration + depth)
        reached = reached * rising * decay**depth
        total = total + reached
    return total


def _first_choices(
    lengths: Floats, concentration: Floats, decay: Floats, draft_tokens: int
) -> Floats:
    """P(first token accepted) of each member whose mean length is given, by bisection."""
    low, high = np.zeros_like(lengths), np.ones_like(lengths)
    for _ in range(60):
        middle = (low + high) / 2.0
        short = _tokens(middle, concentration, decay, draft_tokens) < lengths
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.clip((low + high) / 2.0, 1e-9, 1.0 - 1e-9)
