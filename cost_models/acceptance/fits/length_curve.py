"""Hazards from mean acceptance lengths at several draft lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError

Floats = NDArray[np.float64]
LENGTH_NOISE = 0.06
"""Standard deviation of a published mean length, tokens: golden curves are known to about 0.1
(90 %), and fall by as much where more drafting cannot lose tokens."""
HAZARD_STEP = 0.1
"""Prior standard deviation of the step between the hazards of neighbouring depths."""
_LEAST, _MOST = 1e-3, 1.0 - 1e-3


def fit_length_curve(
    curve: Mapping[int, float],
    key: AcceptanceKey,
    *,
    provenance: Mapping[str, Any] | None = None,
) -> AcceptanceProfile:
    """Conditional rates h_1, h_2, ... whose lengths 1 + sum of their products are the curve's.

    One set of rates for all draft lengths makes every fitted curve rise and bend down, whatever
    noise does to the points (concave regression); between points that are far apart the rates
    stay as constant as they can. Least squares with a Gaussian prior on steps of the rates. The
    posterior is Laplace's approximation, wider where the points lie farther from the curve than
    `LENGTH_NOISE` explains, and given as the counts by depth that leave the lengths as uncertain.

    Args:
        curve: mean tokens per round, the bonus counted, by draft length.
        key: what the profile is about.
        provenance: how the curve came about.

    Raises:
        UsageError: it is empty, or a length is not possible.
    """
    _check(curve, key)
    if len(curve) == 1:
        ((draft_tokens, length),) = curve.items()
        return fit_mean_length(length, draft_tokens, key, provenance=provenance)
    from scipy.optimize import least_squares

    points = sorted(curve.items())
    deepest = points[-1][0]
    at = np.array([draft_tokens - 1 for draft_tokens, _ in points])
    lengths = np.array([length for _, length in points])

    def residuals(hazards: Floats) -> Floats:
        fitted = 1.0 + np.cumsum(np.cumprod(hazards))[at]
        parts = [(fitted - lengths) / LENGTH_NOISE, np.diff(hazards) / HAZARD_STEP]
        return np.concatenate(parts)

    start = np.full(deepest, min(_MOST, max(_LEAST, (lengths[-1] - 1.0) / lengths[-1])))
    fit = least_squares(residuals, start, bounds=(_LEAST, _MOST))
    missed, slopes = fit.fun[: len(points)], fit.jac[: len(points)]
    trials = _equivalent_trials(fit.x, fit.jac, slopes, missed)
    facts = {
        **(provenance or {}),
        "rounds": float(trials[0]),
        "rounds_assumed": True,
        "curve": {str(draft_tokens): length for draft_tokens, length in points},
        "largest_miss": float(np.abs(missed).max() * LENGTH_NOISE),
    }
    return AcceptanceProfile.from_hazards(
        [[float(hazard)] for hazard in fit.x],
        key=key,
        trials=trials.tolist(),
        measured_depth=deepest,
        provenance=facts,
    )


def _equivalent_trials(hazards: Floats, jacobian: Floats, slopes: Floats, missed: Floats) -> Floats:
    """Counts by depth that leave the lengths as uncertain as the points do.

    The rates' errors hang together (a rate too high has a neighbour too low), and counts by
    depth do not say so: their variances are scaled so that those of the lengths are right in
    the (geometric) mean of the points.

    Args:
        hazards: [depth].
        jacobian: of all residuals, [residuals, depth].
        slopes: its rows of the points, [points, depth].
        missed: residuals of the points, [points].
    """
    widen = max(1.0, float((missed**2).mean()))
    covariance = np.linalg.inv(np.einsum("ri,rj->ij", jacobian, jacobian)) * widen
    variance = np.diag(covariance)
    joint = np.einsum("pi,ij,pj->p", slopes, covariance, slopes)
    independent = np.einsum("pi,i->p", slopes**2, variance)
    scale = max(1.0, float(np.exp(np.log(independent / joint).mean())))
    trials: Floats = np.maximum(hazards * (1.0 - hazards) / variance * scale - 1.0, 1.0)
    return trials


def _check(curve: Mapping[int, float], key: AcceptanceKey) -> None:
    wrong = [(k, length) for k, length in curve.items() if k < 1 or not 1 <= length <= k + 1]
    if wrong or not curve:
        what = f"{wrong[0][1]:g} at {wrong[0][0]} drafted tokens" if wrong else "nothing"
        raise UsageError(
            f"the curve of acceptance lengths holds {what}",
            where=f"acceptance of {key.drafter}",
            remedy="Lengths count the bonus token, and lie in [1, drafted tokens + 1].",
        )
