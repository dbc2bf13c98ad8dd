"""Hazards from what was counted, or from rates, position by position of a drafted chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError

ASSUMED_ROUNDS = 200.0
"""Rounds taken to be behind figures whose source does not say: an interval of +-5 % or so."""


def fit_counts(
    accepted: Sequence[float],
    trials: Sequence[float],
    key: AcceptanceKey,
    provenance: Mapping[str, Any] | None = None,
) -> AcceptanceProfile:
    """Hazards from counts by depth.

    Args:
        accepted: tokens accepted at depth 1, 2, ...
        trials: tokens judged there, whose elders were all accepted.
        key: what the profile is about.
        provenance: how the counts came about.

    Returns:
        Frequencies with their counts; deeper than the last depth with trials is extrapolated.

    Raises:
        UsageError: there are no trials, or more is accepted than judged.
    """
    reached = [pair for pair in zip(accepted, trials, strict=True) if pair[1] > 0]
    wrong = [pair for pair in reached if not 0 <= pair[0] <= pair[1] * (1 + 1e-9)]
    if not reached or wrong:
        what = "nothing was drafted" if not reached else f"{wrong[0][0]:g} of {wrong[0][1]:g} kept"
        raise UsageError(
            f"the counts give no acceptance: {what}",
            where=f"acceptance of {key.drafter}",
            remedy="Take the counts from a run with speculative decoding.",
        )
    return AcceptanceProfile.from_hazards(
        [[min(1.0, hits / judged)] for hits, judged in reached],
        key=key,
        trials=[float(judged) for _, judged in reached],
        measured_depth=len(reached),
        provenance=provenance,
    )


def fit_rates(
    rates: Sequence[float],
    rounds: float | None,
    key: AcceptanceKey,
    provenance: Mapping[str, Any] | None = None,
) -> AcceptanceProfile:
    """Hazards from P(the first i drafted tokens are all accepted), i = 1, 2, ...

    These are the "per-position acceptance rates" of serving engines: not conditional, the bonus
    not counted. Where noise lets them rise they are replaced by the nearest falling sequence.

    Args:
        rates: by position, in [0, 1].
        rounds: behind them; `ASSUMED_ROUNDS` when nobody said.
        key: what the profile is about.
        provenance: how the rates came about.

    Raises:
        UsageError: there are none, or one is out of range.
    """
    if not rates or any(not 0 <= rate <= 1 for rate in rates):
        raise UsageError(
            f"acceptance rates must be in [0, 1], not {list(rates)!r}",
            where=f"acceptance of {key.drafter}",
            remedy="Give fractions, not percent.",
        )
    behind = rounds or ASSUMED_ROUNDS
    accepted = [rate * behind for rate in falling(rates)]
    facts = {**(provenance or {}), "rounds": behind, "rounds_assumed": not rounds}
    return fit_counts(accepted, [behind, *accepted[:-1]], key, facts)


def falling(values: Sequence[float]) -> list[float]:
    """The non-increasing sequence nearest in squares.

    Source: pool adjacent violators (Ayer et al. 1955).
    """
    pools: list[tuple[float, int]] = []  # mean, members
    for value in values:
        pool = (value, 1)
        while pools and pools[-1][0] < pool[0]:
            mean, members = pools.pop()
            total = members + pool[1]
            pool = ((mean * members + pool[0] * pool[1]) / total, total)
        pools.append(pool)
    return [mean for mean, members in pools for _ in range(members)]
