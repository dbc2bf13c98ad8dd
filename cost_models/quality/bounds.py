"""P-values and upper bounds of a mean loss, for losses in [0, 1] of whatever distribution.

The hypothesis that is tested is "the mean loss is above a limit". Losses that are all 0 or 1 are
counted, by the binomial distribution; others are bounded by Hoeffding's and Bentkus's inequalities
as Bates et al. 2021 (arXiv 2101.02703, section 3.1) and Learn then Test (arXiv 2110.01052,
proposition 1) join them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, e, exp, fsum, log

import numpy as np

_STEPS = 60
"""Halvings of [0, 1]: far below what a float can tell."""
_ROUNDING = 1e-9


def is_counted(losses: Sequence[float]) -> bool:
    """Whether every loss is 0 or 1, so that they can be counted."""
    return all(loss in (0.0, 1.0) for loss in losses)


def binomial_tail(samples: int, most: int, rate: float) -> float:
    """P(at most so many losses in some samples), where each is lost at a rate in [0, 1]."""
    from scipy.special import bdtr

    return float(bdtr(min(most, samples), samples, rate))


def p_value(losses: Sequence[float], limit: float) -> float:
    """The chance of losses as low as these if their mean were above a limit, or a bound of it.

    Args:
        losses: of requests that were drawn alike and each on its own, in [0, 1].
        limit: in [0, 1].

    Returns:
        In [0, 1]; 1 without losses. If the mean is above the limit, it is at most x with a
        probability of at most x.

    Raises:
        ValueError: a loss lies outside of [0, 1].
    """
    if not losses:
        return 1.0
    if min(losses) < -_ROUNDING or max(losses) > 1.0 + _ROUNDING:
        raise ValueError("losses lie in [0, 1]; divide them by the most that one can be")
    samples, total = len(losses), fsum(losses)
    if is_counted(losses):
        return binomial_tail(samples, round(total), limit)
    return _hoeffding_bentkus(samples, total, limit)


def _hoeffding_bentkus(samples: int, total: float, limit: float) -> float:
    """min(exp(-n h(min(r, a), a)), e P(Bin(n, a) <= ceil(n r))), r the mean loss, a the limit."""
    mean = min(total / samples, limit)
    hoeffding = exp(-samples * _divergence(mean, limit)) if 0.0 < limit < 1.0 else float(limit < 1)
    bentkus = e * binomial_tail(samples, ceil(total - _ROUNDING), limit)
    return min(1.0, hoeffding if mean < limit else 1.0, bentkus)


def _divergence(mean: float, limit: float) -> float:
    """Of two coins, in nats: a ln(a / b) + (1 - a) ln((1 - a) / (1 - b))."""
    parts = ((mean, limit), (1.0 - mean, 1.0 - limit))
    return sum(own * log(own / other) for own, other in parts if own > 0.0)


def upper_bound(losses: Sequence[float], risk: float) -> float:
    """The mean loss is at most this, or something of probability `risk` has happened.

    The least limit that `p_value` rejects at that level; for counted losses the bound of Clopper
    and Pearson (Biometrika 26, 1934).

    Args:
        losses: as in `p_value`.
        risk: probability that the bound is wrong, in (0, 1).

    Returns:
        In [0, 1]; 1 without losses.
    """
    low, high = 0.0, 1.0
    if not losses or p_value(losses, np.nextafter(1.0, 0.0)) > risk:
        return 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if p_value(losses, middle) <= risk:
            high = middle
        else:
            low = middle
    return high
