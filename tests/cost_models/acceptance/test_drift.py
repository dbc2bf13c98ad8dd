"""Drift of acceptance: by counts, by prompts, and against scipy's own G-test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.drift import drift
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile


def table(first: float, trials: float | None) -> AcceptanceProfile:
    return AcceptanceProfile.from_hazards([[first, 0.1], [0.6, 0.1]], trials=trials)


def traces(draws: np.random.Generator, rates: np.ndarray, names: str) -> AcceptanceProfile:
    """Prompts of 60 positions, each with its own chance that the best child is accepted."""
    ranks = tuple(tuple(np.where(draws.random(60) < rate, 0, -1).tolist()) for rate in rates)
    prompts = [f"{names}{index}" for index in range(len(rates))]
    return AcceptanceProfile(
        AcceptanceKey(Model("draft")), Ranks(ranks), provenance={"prompts": prompts}
    )


def test_the_likelihood_ratio_is_that_of_scipy() -> None:
    drift_of_rows = drift(table(0.7, 400), table(0.6, 300), depth=2)
    first, second = drift_of_rows.depths
    seen = np.array([[280.0, 120.0], [180.0, 120.0]])
    golden = chi2_contingency(seen, correction=False, lambda_="log-likelihood")
    assert first.p_value == pytest.approx(golden.pvalue, rel=1e-9)
    assert second.p_value == pytest.approx(1.0)
    assert first.base_counts == (pytest.approx(280.0), 400.0)
    assert drift_of_rows.base_tokens.mean == pytest.approx(1.0 + 0.7 + 0.7 * 0.6)
    assert drift_of_rows.ratio.mean == pytest.approx((1.0 + 0.6 * 1.6) / (1.0 + 0.7 * 1.6))


def test_a_fall_counts_as_far_as_counts_bear_it() -> None:
    assert not drift(table(0.7, 60), table(0.66, 60)).fell(0.02)
    sure = drift(table(0.7, 20000), table(0.66, 20000))
    assert sure.fell(0.02) and not sure.fell(0.2) and not sure.rose(0.02)
    assert drift(table(0.66, 20000), table(0.7, 20000)).rose(0.02)
    exact = drift(table(0.7, None), table(0.66, None))
    assert exact.fell(0.02) and exact.p_value is None and exact.ratio.low == exact.ratio.high


def test_prompts_that_agree_are_compared_prompt_by_prompt() -> None:
    draws = np.random.default_rng(5)
    rates = draws.uniform(0.2, 0.95, 30)
    base = traces(draws, rates, "p")
    same, other = traces(draws, rates - 0.06, "p"), traces(draws, rates - 0.06, "q")
    paired, unpaired = drift(base, same), drift(base, other)
    assert paired.paired and not unpaired.paired
    assert paired.ratio.high - paired.ratio.low < 0.6 * (unpaired.ratio.high - unpaired.ratio.low)
    assert paired.fell(0.02) and not unpaired.fell(0.02)


def test_false_alarms_are_rare_though_prompts_differ() -> None:
    """Positions of a prompt go together; that many positions were counted proves little."""
    draws = np.random.default_rng(11)
    alarms = 0
    for _ in range(60):
        base, head = (traces(draws, draws.uniform(0.2, 0.95, 24), name) for name in "pq")
        alarms += drift(base, head).fell(0.02)
    assert alarms <= 4


def test_a_mean_length_is_compared_with_traces() -> None:
    """As an engine tells one number, and as prompts were measured: drawn unlike in number."""
    draws = np.random.default_rng(3)
    measured = traces(draws, draws.beta(6, 2, size=40), "a")
    fitted = fit_mean_length(2.4, 4, AcceptanceKey(Model("draft")))
    for base, head in ((measured, fitted), (fitted, measured)):
        drift_of_rows = drift(base, head)
        assert 0.0 < drift_of_rows.ratio.low <= drift_of_rows.ratio.mean <= drift_of_rows.ratio.high
