"""Plans whose round hangs on what was emitted, through all that a search makes of prices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cells import split
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.forecast import Forecast
from specplan.ir.schedule import select_round
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.methods.jacobi import METHOD, JacobiOptions
from specplan.planner.search.candidates import Candidate, estimate_as_dict
from specplan.planner.search.composing import SCHEDULE, composed
from specplan.planner.search.scenarios import DRAWS, Draws
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.settings import Setting, priced, pricer_of
from specplan.planner.search.uncertainty import request_draws
from tests.planner.example_facts import example_facts, workload

DEVICE = "h200@magicdec"
"""Verification in Python is dear enough that guesses which are rarely right do not pay."""
OUTPUT = 96
EARLY = 32
"""Tokens of an output in which guesses are right."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """Guesses of which one is right at the beginning of an output and few later, at three loads."""
    facts = example_facts(
        tmp_path_factory.mktemp("facts"),
        device=DEVICE,
        methods=["jacobi"],
        sources=["jacobi"],
        workload=workload(batch_sizes=[1, 2, 256], output_tokens=OUTPUT),
    )
    rows = tuple(
        tuple(int(place < EARLY or (place + p) % 9 == 0) for place in range(OUTPUT))
        for p in range(6)
    )
    names = {METHOD.drafter(facts, options) or "" for options in METHOD.settings(())}
    keys = (acceptance_key(facts.problem, facts.shapes, name) for name in names)
    profiles = {key.drafter: AcceptanceProfile(key, RoundsRun(rows)) for key in keys}
    return search(replace(facts, profiles={**facts.profiles, **profiles}))


def setting(searched: SearchResult, block: int, first: int | None) -> Candidate:
    wanted = JacobiOptions(block, first).words
    return next(c for c in searched.candidates if c.words == wanted)


def test_what_pays_early_is_chosen_for_the_first_tokens_alone(searched: SearchResult) -> None:
    """At small loads; the schedule by load keeps the one by place."""
    alone = searched.best_of_each[0]
    assert alone is not None and alone.options == {"block": 4, "first": EARLY}
    assert searched.best_of_each[2] is searched.plain
    chosen = searched.chosen
    assert chosen.method == SCHEDULE and chosen.by_cell[0] is alone and chosen.plan is not None
    assert [item.name for item in chosen.plan.rounds] == ["r0_blocks", "r0_plain", "r1"]
    for batch, early, late in ((1, "r0_blocks", "r0_plain"), (256, "r1", "r1")):
        for emitted, name in ((0, early), (EARLY - 1, early), (EARLY, late), (OUTPUT - 1, late)):
            assert select_round(chosen.plan, batch=batch, context=88, emitted=emitted) == name
    throughout = setting(searched, 4, None)
    assert alone.simplicity > throughout.simplicity  # two rounds
    first, pure, base = (c.estimates[0] for c in (alone, throughout, searched.plain))
    assert first.decode_seconds.median < min(pure.decode_seconds.median, base.decode_seconds.median)


def test_a_schedule_by_load_costs_what_its_parts_do(searched: SearchResult) -> None:
    parts = [setting(searched, 8, 16), setting(searched, 4, EARLY), searched.plain]
    whole = composed(searched.facts, pricer_of(searched.facts), parts)
    for cell, (estimate, part) in enumerate(zip(whole.estimates, parts, strict=True)):
        own = part.estimates[cell]
        assert estimate.decode_seconds == own.decode_seconds
        assert estimate.ttft.median == pytest.approx(own.ttft.median)
        assert estimate.segments == own.segments and estimate.breakdown == own.breakdown
        assert estimate.first_round == own.first_round


def test_the_first_token_takes_the_first_round(searched: SearchResult) -> None:
    first, pure = setting(searched, 8, 16), setting(searched, 8, None)
    for one, other in zip(first.estimates, pure.estimates, strict=True):
        assert one.first_round > 1.0 == other.first_round
        assert one.ttft.median == pytest.approx(other.ttft.median, rel=1e-2)
        assert [segment.round for segment in one.segments] == ["blocks", "plain"]
        assert sum(segment.share for segment in one.segments) == pytest.approx(1.0)


def test_draws_move_the_rounds_that_draft_alone(searched: SearchResult) -> None:
    """As priced anew with so many tokens per round: seconds of each segment by its own tokens."""
    pure, first = setting(searched, 8, None), setting(searched, 8, 16)
    draws = Draws(searched.facts.profiles)
    relative, mixed = draws.of(pure).tokens, draws.of(first).tokens
    assert relative.shape == (DRAWS, 1) and mixed.shape == (DRAWS, 3)
    for cell, estimate in enumerate(first.estimates):
        blocks, plain = (segment.share for segment in estimate.segments)
        longer = blocks / relative[:, 0] + plain
        assert 1.0 / mixed[:, cell] == pytest.approx(longer)
    assert np.ptp(mixed, axis=0).max() < np.ptp(relative)
    drawn = request_draws([pure, first], searched.facts.profiles)
    assert drawn.shape == (DRAWS, 2, 3) and np.isfinite(drawn).all()


def test_its_whole_explanation_is_data(searched: SearchResult) -> None:
    data = json.loads(json.dumps(explain(searched), allow_nan=False))
    assert data["confidence"]["probability_best"] > 0.0
    text = "\n".join(explain_words(data))
    assert "'blocks' up to 32, 'plain' up to 96" in text
    points = [point for part in data["break_even"] for point in part["points"]]
    assert {"acceptance", "batch"} <= {point["unknown"] for point in points}
    by_batch = next(point for point in points if point["unknown"] == "batch")
    assert not by_batch["always"] and not by_batch["never"]
    (accepted,) = data["acceptance"]
    assert accepted["by_depth"][0]["depth"] == 1
    json.dumps(searched.as_dict(), allow_nan=False)


def test_where_acceptance_stops_paying_all_stretches_are_scaled(searched: SearchResult) -> None:
    """At today's acceptance the curve passes through today's price."""
    part = setting(searched, 4, EARLY)
    alone = replace(searched, chosen=part)
    (entry,) = explain(alone)["break_even"]
    curve = [point for point in entry["points"] if point["unknown"] == "acceptance"]
    edge = curve[0]["pays"][0][0]["mean"]
    assert 0.0 < edge < 1.0  # it pays today, and would not without right guesses
    (tokens,) = curve[0]["tokens"]
    assert 1.0 < tokens["mean"] < part.estimates[0].tokens_per_round.mean


def test_a_forecast_is_of_the_whole_decode(searched: SearchResult) -> None:
    estimate = setting(searched, 4, EARLY).estimates[0]
    forecast = Forecast.from_dict(json.loads(json.dumps(estimate_as_dict(estimate))))
    rate = forecast.tokens_per_second().mean
    assert rate == pytest.approx(estimate.tokens_per_second.mean)


def test_an_estimate_of_cells_is_those_of_each_alone(
    searched: SearchResult, tmp_path: Path
) -> None:
    options = JacobiOptions(8, 16)
    whole = setting(searched, 8, 16).estimate
    assert isinstance(whole, Estimate)
    for cell, batch in zip(split(whole, 3), (1, 2, 256), strict=True):
        facts = example_facts(
            tmp_path / str(batch),
            device=DEVICE,
            workload=workload(batch_sizes=[batch], output_tokens=OUTPUT),
        )
        facts = replace(facts, profiles=searched.facts.profiles)
        alone = priced(facts, pricer_of(facts), Setting(METHOD, "any", options)).estimates[0]
        assert cell.request_seconds.median == pytest.approx(alone.request_seconds.median)
        assert cell.own_error == pytest.approx(alone.own_error)
