"""How sure a choice is: draws of the world in which candidates are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.intervals import Interval
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import score
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.uncertainty import confidence, speed_over
from tests.planner.example_facts import example_facts


def searched(tmp_path: Path, *, error: float, trials: float | None) -> SearchResult:
    alpha = AcceptanceProfile.from_hazards([[0.6, 0.15, 0.05]], trials=trials)
    facts = example_facts(tmp_path, given={Model("draft"): alpha})
    device = load_device("a100-sxm-80gb")
    assert isinstance(device, AnalyticDevice)
    return search(replace(facts, device=replace(device, relative_error=error)))


def test_what_is_known_exactly_is_sure(tmp_path: Path) -> None:
    result = searched(tmp_path, error=0.0, trials=None)
    best = min((c for c in result.candidates if c.admissible), key=lambda c: score(c, "latency"))
    facts = result.facts
    sure = confidence(best, result.candidates, facts.profiles, "latency")
    ops = next(m for m in sure.measurements if m.name == "ops")  # always +-100 % on a data sheet
    assert all(m.regret_saved < 1e-12 for m in sure.measurements if m is not ops)


@pytest.mark.parametrize("trials", [30.0, 30_000.0])
def test_probabilities_and_regrets_hang_together(tmp_path: Path, trials: float) -> None:
    result = searched(tmp_path, error=0.3, trials=trials)
    sure = result.confidence
    total = sure.probability_best + sum(p for _, p in sure.rivals)
    assert total == pytest.approx(1.0)
    assert [p for _, p in sure.rivals] == sorted((p for _, p in sure.rivals), reverse=True)
    assert 0.0 <= sure.expected_regret < 0.2
    saved = [m.regret_saved for m in sure.measurements]
    assert saved == sorted(saved, reverse=True) and saved[0] <= sure.expected_regret + 1e-3
    sources = {(m.kind, m.name) for m in sure.measurements}
    assert {("acceptance", "draft"), ("device", "target"), ("device", "draft")} <= sources


def test_two_plans_are_compared_in_the_same_worlds(tmp_path: Path) -> None:
    """What both share cancels: much less is open of their ratio than of their gains over plain."""
    result = searched(tmp_path, error=0.3, trials=30.0)
    profiles = result.facts.profiles

    def over(one: Candidate, other: Candidate) -> Interval:
        return speed_over(one, other, profiles, "latency")

    chains = [c for c in result.candidates if c.admissible and c.family == "chain by draft"]
    (short, long), plain = chains[:2], result.plain
    assert over(short, short) == Interval(1.0, 1.0, 1.0)
    gain, back = over(long, short), over(short, long)
    assert gain.mean == pytest.approx(score(short, "latency") / score(long, "latency"))
    assert gain.low < gain.mean < gain.high
    assert (back.low, back.high) == pytest.approx((1.0 / gain.high, 1.0 / gain.low))
    ends = [over(c, plain) for c in (long, short)]
    assert gain.high - gain.low < 0.5 * (ends[0].high / ends[1].low - ends[0].low / ends[1].high)


def test_more_trials_leave_less_to_gain_from_acceptance(tmp_path: Path) -> None:
    saved = []
    for trials in (20.0, 200.0, 20_000.0):
        sure = searched(tmp_path, error=0.02, trials=trials).confidence
        saved.append(next(m.regret_saved for m in sure.measurements if m.kind == "acceptance"))
    assert saved[0] > saved[1] + 1e-4 and saved[1] + 1e-9 > saved[2] >= 0.0
    assert saved[2] < 0.002


def test_a_worse_choice_is_regretted_more(tmp_path: Path) -> None:
    result = searched(tmp_path, error=0.1, trials=500.0)
    profiles = result.facts.profiles
    regrets = [
        (
            score(candidate, "latency"),
            confidence(candidate, result.candidates, profiles, "latency").expected_regret,
        )
        for candidate in result.candidates
        if candidate.admissible
    ]
    times, losses = np.array(regrets).T
    assert np.corrcoef(times, losses)[0, 1] > 0.9
    assert confidence(result.chosen, result.candidates, profiles, "latency") == result.confidence
