"""Rounds whose lookup has no match: how many there are, and what the mean round costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from specplan.backends.static.executable import StaticExecutable
from specplan.cost_models.acceptance.drafters import TEXT
from specplan.cost_models.acceptance.evidence.base import read_drafting
from specplan.cost_models.acceptance.evidence.lengths import NOTHING, Lengths
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.rounds.demands import round_demands
from specplan.cost_models.rounds.matching import searched_once
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, Unpriced, price_round
from specplan.cost_models.rounds.segments import (
    OutputSegment,
    price_decode,
    read_drafted,
    read_segments,
)
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.matching import NO_MATCH
from specplan.measure.acceptance.teacher import lookup_lengths
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.pairs import counting, load_pair, plain, run, save_pair
from tests.cost_models.rounds.test_pricing import PLAIN, SHAPES
from tests.plan_texts import TWO_LENGTHS, drafted

COPY = """  %t0 = root
  %c = lookup @text %t0 at=%t0 match=[1, 2] length=4"""
PLAN = parse_plan(drafted(COPY, draft=False))


class Skipping(AnalyticDevice):
    """A data sheet whose rounds leave dead nodes out where a lookup has no match."""

    skips_dead: ClassVar[bool] = True


SHEET = load_device("a100-sxm-80gb")
SKIPPING = Skipping(**{one.name: getattr(SHEET, one.name) for one in fields(AnalyticDevice)})


def seconds_of(plan: Plan, rows: tuple[tuple[int, ...], ...], device: Any, batch: Any) -> Any:
    """Of the mean round."""
    drafts = read_drafted(plan, read_segments(plan, 1, 100, 64), Lengths(rows))
    assert not isinstance(drafts, Unpriced)

    def pricer(_: OutputSegment) -> RoundPricer:
        return RoundPricer(device, SHAPES, batch, 100)

    decode = price_decode(drafts, pricer, batch)
    assert not isinstance(decode, Unpriced)
    return decode.round.seconds.median


@pytest.mark.parametrize("batch", [1, 2])
def test_the_mean_round_is_of_both_forms(batch: int) -> None:
    """Every other round begins where nothing is proposed: for all of a batch, a power of a half."""
    known = ((NOTHING, 2, 1, 0) * 8,) * 3
    unknown = tuple(tuple(max(one, 0) for one in row) for row in known)
    profiles = [AcceptanceProfile(AcceptanceKey(TEXT), Lengths(rows)) for rows in (known, unknown)]
    aware, unaware = (read_drafting(PLAN, PLAN.rounds[0], one.evidence) for one in profiles)
    assert not isinstance(aware, Unpriced) and not isinstance(unaware, Unpriced)
    assert aware.tokens_per_round == unaware.tokens_per_round
    assert aware.demands.matching is not None and unaware.demands.matching is None
    assert aware.demands.matching.shares[-1] == 0.5
    assert profiles[0].hazard(1, 0) == profiles[1].hazard(1, 0)
    pricer = RoundPricer(SKIPPING, SHAPES, batch, 100)
    bare_plan = parse_plan(PLAIN)
    alone = read_drafting(bare_plan, bare_plan.rounds[0], None)
    assert not isinstance(alone, Unpriced)
    whole, bare = (price_round(one.demands, pricer, {}) for one in (unaware, alone))
    assert isinstance(whole, RoundPrice) and isinstance(bare, RoundPrice)
    (lookups,) = (one.seconds.median for one in whole.breakdown if "lookup" in one.op)
    share = 0.5**batch
    mean = (1 - share) * whole.seconds.median + share * (bare.seconds.median + lookups)
    assert mean < whole.seconds.median - 2e-5
    # a second root is 5 us of glue there
    assert seconds_of(PLAN, known, SKIPPING, batch) == pytest.approx(mean, abs=6e-6)
    assert seconds_of(PLAN, known, SKIPPING, np.array([batch]))[0] == pytest.approx(mean, abs=6e-6)
    for rows, device in ((known, SHEET), (unknown, SKIPPING)):
        assert seconds_of(PLAN, rows, device, batch) == pytest.approx(whole.seconds.median)


def test_as_many_rounds_run_without_drafts_as_the_trace_says(tmp_path: Path) -> None:
    save_pair(tmp_path)
    models, ran = load_pair(tmp_path), Counter[int | None]()

    executable = StaticExecutable(PLAN, models, counting(ran))
    for prompt in ((5, 9, 2, 33, 5), (7, 7, 1), (3, 20, 41, 8)):
        requests = [Request(prompt_tokens=prompt, max_new_tokens=40)]
        (tokens,) = run(plain(), models, requests)
        rows = tuple(lookup_lengths([*prompt, *tokens], len(prompt), (1, 2), 4))
        ran.clear()
        generate(executable, requests)
        drafting = read_drafting(PLAN, PLAN.rounds[0], Lengths((rows,)))
        assert not isinstance(drafting, Unpriced) and drafting.demands.matching is not None
        assert 0 < ran[NO_MATCH] < ran.total()
        assert drafting.demands.matching.shares[-1] == pytest.approx(ran[NO_MATCH] / ran.total())


@pytest.mark.parametrize("match, searches", [("[1, 6]", 1), ("[1, 1]", 2)])
def test_copies_after_one_longest_match_are_searched_for_once(match: str, searches: int) -> None:
    """By the host of a compiled round; the interpreter searches for each."""
    plan = parse_plan(drafted(TWO_LENGTHS.replace("[1, 1]", match), draft=False))
    demands = round_demands(plan, plan.rounds[0])
    lookups = [one for one in demands.steps if one.op.keyword == "lookup"]
    once = searched_once(demands)
    assert [one for one in once.steps if one.op.keyword == "lookup"] == lookups[:searches]
    assert len(lookups) == 2 and len(once.steps) == len(demands.steps) - 2 + searches
    assert once.judged == demands.judged
