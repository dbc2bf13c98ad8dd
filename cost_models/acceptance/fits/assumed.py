"""Acceptance that a user assumes, as a profile that says so.

A number is taken as exact: one acceptance probability at every position (Leviathan et al. 2022).
Rates by position and mean lengths get the width that figures without a count have elsewhere
(`ASSUMED_ROUNDS`), since they leave open what deeper positions accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul

from specplan.cost_models.acceptance.fits.counts import fit_rates
from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.profile import ASSUMPTION, AcceptanceKey, AcceptanceProfile


def assume_rate(rate: float, key: AcceptanceKey) -> AcceptanceProfile:
    """The same conditional acceptance at every position.

    Args:
        rate: P(a draft token is accepted | all before it were).
        key: what the profile is about.
    """
    profile = AcceptanceProfile.from_hazards([[rate]], key=key)
    return _marked(profile, f"{rate:g} for every draft token, given those before")


def assume_rates(
    rates: Sequence[float], key: AcceptanceKey, *, marginal: bool
) -> AcceptanceProfile:
    """Rates by position 1, 2, ...

    Args:
        rates: conditional ones, or P(the first i draft tokens are all accepted).
        key: what the profile is about.
        marginal: which of the two they are.

    Raises:
        UsageError: one is out of range.
    """
    reached = list(rates) if marginal else list(accumulate(rates, mul))
    kind = "marginal" if marginal else "conditional"
    listed = ", ".join(f"{rate:g}" for rate in rates)
    length = f"{1.0 + sum(reached):.2f} tokens per step at {len(rates)}"
    text = f"{kind} rates {listed}, that is {length}"
    return _marked(fit_rates(reached, None, key), text)


def assume_length(length: float, draft_tokens: int, key: AcceptanceKey) -> AcceptanceProfile:
    """A mean number of tokens per step, the bonus included, at so many draft tokens.

    Raises:
        UsageError: the length cannot be that of such a draft.
    """
    profile = fit_mean_length(length, draft_tokens, key)
    return _marked(profile, f"{length:g} tokens per step at {draft_tokens} draft tokens")


def _marked(profile: AcceptanceProfile, text: str) -> AcceptanceProfile:
    facts = {"kind": ASSUMPTION, "assumed": text, "words": f"is assumed: {text}"}
    return replace(profile, provenance={**profile.provenance, **facts})
