"""Copies with a model behind them: lengths, shares of rounds and prices, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import Fallback
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.evidence.fallback import FallbackTrace
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, price_round
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from tests.cost_models.rounds.test_pricing import SHAPES
from tests.cost_models.rounds.test_silent_lookups import SHEET, SKIPPING
from tests.plan_texts import BEHIND, drafted

KEY = AcceptanceKey(Fallback("text", "draft"), match=(2, 4))
ROWS = (((3, 0), (2, 1), (1, 1), (0, 1), (-1, 1), (-1, 0)),)
PLAN = parse_plan(drafted(BEHIND))


def test_rounds_by_hand(tmp_path: Path) -> None:
    """Rounds begin at positions 0, 4 and, one token drafted, 6: the second has no match."""
    AcceptanceProfile(KEY, FallbackTrace(8, 5, ROWS)).save(tmp_path / "profile.json")
    profile = AcceptanceProfile.load(tmp_path / "profile.json")
    trace = profile.evidence
    assert isinstance(trace, FallbackTrace) and trace == FallbackTrace(8, 5, ROWS)
    assert trace.lengths(2, 1) == ((2, 2, 1, 0, 1, 0),)
    drafting = read_drafting(PLAN, PLAN.rounds[0], trace)
    assert isinstance(drafting, Drafting) and drafting.demands.matching is not None
    assert drafting.demands.matching.shares[-1] == 0.5
    assert drafting.rounds(6, 1).mean == 2.0
    longer = parse_plan(drafted(BEHIND.replace("length=4", "length=9")))
    refused = str(read_drafting(longer, longer.rounds[0], trace))
    assert "8 tokens of the source were compared, and 9 are drafted" in refused


@pytest.mark.parametrize("device", [SHEET, SKIPPING])
def test_the_draft_model_is_paid_where_nothing_matches(device: AnalyticDevice) -> None:
    """The mean of a round that copies and of one that drafts."""
    pricer = RoundPricer(device, SHAPES, 1, 100)
    drafting = read_drafting(PLAN, PLAN.rounds[0], FallbackTrace(8, 5, ROWS))
    assert isinstance(drafting, Drafting) and drafting.demands.matching is not None
    forms = drafting.demands.matching
    whole_round = replace(drafting.demands, matching=None)
    seconds = []
    for demands in (drafting.demands, *forms.forms, whole_round):
        price = price_round(demands, pricer, {})
        assert isinstance(price, RoundPrice)
        seconds.append(float(price.seconds.median))
    mean, matched, unmatched, whole = seconds
    assert matched < whole and unmatched < whole
    without = unmatched if device.skips_dead else whole
    assert mean == pytest.approx((matched + without) / 2)


@pytest.mark.parametrize("rows", [(), (((9, 0),),), (((0, -1),),), (((-2, 0),),), (((1,),),)])
def test_broken_traces_are_refused(rows: object) -> None:
    with pytest.raises(UsageError, match=r"no measurement|out of range"):
        AcceptanceProfile(KEY, FallbackTrace(8, 5, rows))  # type: ignore[arg-type]
