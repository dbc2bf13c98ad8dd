"""Loops that end by request, priced by the trips that were told: against sums done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import OwnRounds
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, Unpriced, price_round
from specplan.cost_models.rounds.stopping import shares_of_batch
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from tests.cost_models.rounds.test_pricing import SHAPES
from tests.plan_texts import greedy_chain

KEY = AcceptanceKey(OwnRounds("stopping", "p1", ("draft",)), how="run")
LENGTHS = ((1, 0, 3, 2, 1, 0, 0, 0),)
TRIPS = ((1, -1, 3, -1, -1, -1, 1, 2),)
"""Of four rounds two took one trip, one two and one three."""
SHARES = (0.5, 0.25, 0.25)


def stopping(length: int) -> Plan:
    """A chain that ends where a draft token is not sure."""
    chain = greedy_chain(length)
    from specplan.ir.text.printer import print_plan

    text = print_plan(chain)
    assert text.count("    yield %n") == 1
    body = '    %m = measure %q top1\n    %stop = compute "m < 0.5" m=%m\n    yield %n until=%stop'
    return parse_plan(text.replace("    yield %n", body))


PROFILE = AcceptanceProfile(KEY, RoundsRun(LENGTHS, TRIPS))


def drafting_of(plan: Plan, profile: AcceptanceProfile = PROFILE) -> Drafting:
    drafting = read_drafting(plan, plan.rounds[0], profile.evidence)
    assert isinstance(drafting, Drafting), drafting
    return drafting


def seconds(plan: Plan, batch: int) -> float:
    """Of a round in which all trips run."""
    drafting = drafting_of(plan, AcceptanceProfile(KEY, RoundsRun(LENGTHS)))
    pricer = RoundPricer(load_device("h200"), SHAPES, batch, 100)
    price = price_round(drafting.demands, pricer, {})
    assert not isinstance(price, Unpriced)
    return float(price.seconds.median)


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_round_takes_what_its_longest_request_takes(batch: int) -> None:
    """The mean over the last trip of a batch, each a round with a shorter loop."""
    plan = stopping(6)
    within = np.cumsum([0.0, *SHARES])
    weights = np.diff(within**batch)
    expected = sum(w * seconds(stopping(n), batch) for n, w in enumerate(weights, start=1))
    drafting = drafting_of(plan)
    assert shares_of_batch(drafting.demands, batch) == pytest.approx([0.0, *weights])
    pricer = RoundPricer(load_device("h200"), SHAPES, batch, 100)
    price = price_round(drafting.demands, pricer, drafting.lag(batch))
    assert isinstance(price, RoundPrice)
    assert price.seconds.median == pytest.approx(expected)
    assert sum(float(part.seconds.median) for part in price.breakdown) == pytest.approx(expected)
    drafts = sum(part.times for part in price.breakdown if part.model == "draft")
    assert drafts == pytest.approx(sum(n * w for n, w in enumerate(weights, start=1)))
    verified = [part for part in price.breakdown if part.model == "target"]
    assert {part.width: part.times for part in verified} == pytest.approx(
        {n + 1: w for n, w in enumerate(weights, start=1)}
    )


def test_many_loads_are_priced_as_each_of_them() -> None:
    plan, device = stopping(6), load_device("h200")
    batches = np.array([1, 4, 16])
    every = Pricer(device, SHAPES, batches, np.array([40, 40, 400]), 32).estimate(plan, PROFILE)
    assert isinstance(every, Estimate)
    for cell, batch, prompt in zip(every.cells(), (1, 4, 16), (40, 40, 400), strict=True):
        alone = Pricer(device, SHAPES, batch, prompt, 32).estimate(plan, PROFILE)
        assert isinstance(alone, Estimate)
        assert cell.seconds_per_round.median == pytest.approx(alone.seconds_per_round.median)
        assert "loops" not in " ".join(cell.assumptions)
    pricer = RoundPricer(device, SHAPES, batches[:, None], 56)
    price = price_round(drafting_of(plan).demands, pricer, {})
    assert isinstance(price, RoundPrice)
    first = float(np.ravel(price.seconds.median)[0])
    assert first == pytest.approx(every.cells()[0].seconds_per_round.median)


def test_what_no_profile_tells_runs_all_its_trips() -> None:
    plan, untold = stopping(4), AcceptanceProfile(KEY, RoundsRun(LENGTHS))
    pricer = RoundPricer(load_device("h200"), SHAPES, 1, 100)
    price = price_round(drafting_of(plan, untold).demands, pricer, {})
    assert isinstance(price, RoundPrice)
    assert "loops that may stop early run all their trips" in price.assumptions
    assert sum(part.times for part in price.breakdown if part.model == "draft") == 4


def test_a_loop_shorter_than_what_was_stated_ends_with_it() -> None:
    drafting = drafting_of(stopping(2))
    assert shares_of_batch(drafting.demands, 1) == pytest.approx([0.0, 0.5, 0.5])
    assert drafting.tokens_per_round.mean == drafting_of(stopping(2)).tokens_per_round.mean


def test_profiles_keep_their_trips(tmp_path: Path) -> None:
    PROFILE.save(tmp_path / "p.json")
    read = AcceptanceProfile.load(tmp_path / "p.json")
    assert read == PROFILE and read.evidence.stopped == (0.0, 0.5, 0.75, 1.0)
    assert RoundsRun(LENGTHS).stopped == ()


@pytest.mark.parametrize(
    ("trips", "says"),
    [
        (((1, 2),), "one for each"),
        (((-1,) * 8,), "belong to no round"),
        (((-2, *(1,) * 7),), "out of range"),
        (((0.5, *(1,) * 7),), "out of range"),
    ],
)
def test_broken_trips_are_refused(trips: tuple[tuple[int, ...], ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        AcceptanceProfile(KEY, RoundsRun(LENGTHS, trips))
