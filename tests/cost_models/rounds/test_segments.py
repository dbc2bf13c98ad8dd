"""Plans whose round hangs on what a request has emitted: prices against sums done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.formulas.closed_forms import expected_tokens
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, Unpriced, price_round
from specplan.cost_models.rounds.segments import (
    OutputSegment,
    read_drafted,
    read_segments,
    segment_rounds,
)
from specplan.ir.plan import Guard, Plan, Schedule
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import Text
from specplan.planner.templates.merged_rounds import first_then, merge_plans
from tests.cost_models.rounds.test_pricing import PLAIN, SHAPES
from tests.ir.plans_on_disk import plan_of
from tests.plan_texts import greedy_chain

DEVICE = load_device("a100-sxm-80gb")
NUMBERS = (
    "seconds_per_round", "tokens_per_round", "seconds_per_token", "decode_tokens_per_second",
    "ttft", "prefill", "rounds", "decode_seconds", "request_seconds", "tokens_per_second",
    "own_error", "first_round", "prompts", "breakdown",
)  # fmt: skip


@cache
def first(tokens: int, drafted: int = 4, then: int = 0) -> Plan:
    """Chains for the first tokens, then shorter ones, or plain decoding."""
    after = greedy_chain(then) if then else parse_plan(PLAIN)
    return first_then(greedy_chain(drafted), tokens, after, ("chain", "after"))


def guarded(*guards: tuple[str, str]) -> Plan:
    """Rounds `r0` (chains of 4) and `r1` (chains of 2) by these guards, otherwise `r1`."""
    plan = merge_plans({"r0": greedy_chain(4), "r1": greedy_chain(2)})
    listed = tuple(Guard(formula=Text(text), round=name) for text, name in guards)
    return replace(plan, schedule=Schedule(guards=listed, otherwise="r1"))


def priced(
    plan: Plan, acceptance: AcceptanceProfile | None, batch: int = 1, output: int = 64
) -> Estimate:
    estimate = Pricer(DEVICE, SHAPES, batch, 100, output).estimate(plan, acceptance)
    assert isinstance(estimate, Estimate), estimate
    return estimate


def rounds_of(plan: Plan, profile: AcceptanceProfile, output: int, batch: int = 1) -> list[float]:
    drafted = read_drafted(plan, read_segments(plan, batch, 100, output), profile.evidence)
    assert not isinstance(drafted, Unpriced)
    return [count.mean for count in segment_rounds(drafted, batch)]


def lengths(*rows: Sequence[int]) -> AcceptanceProfile:
    return AcceptanceProfile(AcceptanceKey(Model("draft")), Lengths(tuple(map(tuple, rows))))


def test_an_output_is_cut_where_the_round_changes() -> None:
    by_place = plan_of("layers_by_position")
    assert read_segments(by_place, 1, 100, 200) == (
        OutputSegment("all", 0, 32), OutputSegment("most", 32, 128), OutputSegment("few", 128, 200),
    )  # fmt: skip
    assert read_segments(by_place, 1, 100, 32) == (OutputSegment("all", 0, 32),)
    assert read_segments(greedy_chain(2), 1, 100, 9) == (OutputSegment("decode", 0, 9),)
    turns = read_segments(guarded(("emitted % 8 < 3", "r0")), 1, 100, 20)
    assert [(s.round, s.start, s.stop) for s in turns] == [
        ("r0", 0, 3), ("r1", 3, 8), ("r0", 8, 11), ("r1", 11, 16), ("r0", 16, 19), ("r1", 19, 20),
    ]  # fmt: skip


def test_guards_also_read_the_load() -> None:
    plan = guarded(("batch <= 2 and emitted < 8", "r0"), ("context > 400 and emitted < 4", "r0"))
    cut = {
        8: (OutputSegment("r0", 0, 8), OutputSegment("r1", 8, 20)),
        20: (OutputSegment("r1", 0, 20),),
    }
    assert read_segments(plan, 2, 100, 20) == cut[8]
    assert read_segments(plan, 3, 100, 20) == cut[20]
    assert read_segments(plan, 3, 401.0, 20)[0] == OutputSegment("r0", 0, 4)
    assert read_segments(plan, np.array([1, 2]), np.array([9.0, 99.5]), 20) == cut[8]
    with pytest.raises(
        ValueError, match=r"different rounds must be priced separately: \['r0', 'r1'\]"
    ):
        read_segments(plan, np.array([2, 3]), 100, 20)


@pytest.mark.parametrize("then", [0, 2])
@pytest.mark.parametrize("batch", [1, 8])
def test_the_price_is_the_sum_over_stretches(then: int, batch: int) -> None:
    """Constant acceptance: tokens by Leviathan's formula, rounds by Wald's identity."""
    alpha, bound, output = 0.7, 24, 64
    plan, profile = first(bound, 4, then), AcceptanceProfile.from_hazards([[alpha]])
    estimate = priced(plan, profile, batch, output)
    tokens = [expected_tokens(alpha, drafted) for drafted in (4, then)]
    # what the round that reaches a bound emits beyond it: E[X (X - 1)] / (2 E[X])
    beyond = [
        sum(depth * alpha**depth for depth in range(1, drafted + 1)) / mean
        for drafted, mean in zip((4, then), tokens, strict=True)
    ]
    rounds = [(bound + beyond[0]) / tokens[0], (output - bound - beyond[0] + beyond[1]) / tokens[1]]
    assert rounds_of(plan, profile, output, batch) == pytest.approx(rounds)
    prices = []
    for (_, drafting), middle in zip(
        _drafted(plan, profile, output), (bound / 2, (bound + output) / 2), strict=True
    ):
        pricer = RoundPricer(DEVICE, SHAPES, batch, 100 + middle)
        price = price_round(drafting.demands, pricer, drafting.lag(batch))
        assert isinstance(price, RoundPrice)
        prices.append(price.seconds.median)
    seconds = [price * count for price, count in zip(prices, rounds, strict=True)]
    decode = sum(seconds)
    assert estimate.decode_seconds.median == pytest.approx(decode)
    assert estimate.rounds.mean == pytest.approx(sum(rounds))
    assert estimate.seconds_per_round.median == pytest.approx(decode / sum(rounds))
    emitted = sum(mean * count for mean, count in zip(tokens, rounds, strict=True))
    assert estimate.tokens_per_round.mean == pytest.approx(emitted / sum(rounds))
    assert estimate.seconds_per_token.median == pytest.approx(decode / emitted)
    assert estimate.ttft.median == pytest.approx(estimate.prefill.median + prices[0])
    assert estimate.request_seconds.median == pytest.approx(estimate.prefill.median + decode)
    assert [s.share for s in estimate.segments] == pytest.approx([x / decode for x in seconds])
    parts = sum(part.seconds.median for part in estimate.breakdown)
    assert parts == pytest.approx(estimate.seconds_per_round.median)
    drafts = sum(part.times for part in estimate.breakdown if part.model == "draft")
    assert drafts == pytest.approx((4 * rounds[0] + then * rounds[1]) / sum(rounds))
    whole = Pricer(DEVICE, SHAPES, batch, 100, output)
    assert estimate.memory == whole.memory(plan) and estimate.prefill == whole.prefill(plan)


def _drafted(plan: Plan, profile: AcceptanceProfile, output: int):  # type: ignore[no-untyped-def]
    segments = read_drafted(plan, read_segments(plan, 1, 100, output), profile.evidence)
    assert not isinstance(segments, Unpriced)
    return segments


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8])
@pytest.mark.parametrize(("drafted", "then", "bound", "output"), [(4, 0, 16, 48), (4, 2, 20, 64)])
def test_rounds_are_those_of_the_chain_of_all_outcomes(
    alpha: float, drafted: int, then: int, bound: int, output: int
) -> None:
    """Every way in which rounds of independent tokens may go, by its probability."""
    profile = AcceptanceProfile.from_hazards([[alpha]])
    expected = [0.0, 0.0]
    at = np.zeros(output + drafted + 1)
    at[0] = 1.0
    for place in range(output):
        late = place >= bound
        expected[late] += at[place]
        most = then if late else drafted
        for accepted in range(most + 1):
            chance = alpha**accepted * (1.0 - alpha if accepted < most else 1.0)
            at[place + accepted + 1] += at[place] * chance
    counted = rounds_of(first(bound, drafted, then), profile, output)
    assert counted == pytest.approx(expected, rel=0.01)


def test_a_replay_counts_the_rounds_of_each_stretch_where_they_ran() -> None:
    """Acceptance declines with the place: rounds as enumerated, prompt by prompt."""
    rows = [[3] * 24 + [0] * 24, [2] * 24 + [1] * 24]
    profile, bound, output = lengths(*rows), 24, 44
    plan = guarded((f"emitted < {bound}", "r0"))
    alike = first_then(greedy_chain(4), bound, greedy_chain(4), ("one", "other"))
    begun = {most: [_begins(row, most, output) for row in rows] for most in (4, 2)}
    early = fmean(sum(place < bound for place in places) for places in begun[4])
    assert rounds_of(plan, profile, output)[0] == pytest.approx(early)
    late = fmean(sum(place >= bound for place in places) for places in begun[4])
    assert rounds_of(alike, profile, output) == pytest.approx([early, late])
    assert early / bound < 0.4 * late / (output - bound)
    whole, parts = priced(greedy_chain(4), profile, 1, output), priced(alike, profile, 1, output)
    assert parts.rounds.mean == pytest.approx(whole.rounds.mean)
    assert parts.decode_seconds.median == pytest.approx(whole.decode_seconds.median, rel=1e-3)
    slowest = max(map(len, begun[4]))
    assert sum(rounds_of(alike, profile, output, 64)) == pytest.approx(slowest, rel=1e-6)


def _begins(row: Sequence[int], most: int, output: int) -> list[int]:
    """Where the rounds of an output begin that keep what a row says, `most` tokens at most."""
    places = [0]
    while (after := places[-1] + min(row[places[-1]], most) + 1) < output:
        places.append(after)
    return places


def test_without_a_change_it_is_the_price_of_the_one_round() -> None:
    profile = AcceptanceProfile.from_hazards([[0.6]], trials=200)
    for bound, alone, known in ((64, greedy_chain(4), profile), (0, parse_plan(PLAIN), None)):
        expected, estimate = priced(alone, known), priced(first(bound), profile)
        # the model that drafts nothing reads the prompt nevertheless
        of_decode = ("seconds_per_round", "tokens_per_round", "rounds", "decode_seconds")
        for name in NUMBERS if bound else of_decode:
            assert getattr(estimate, name) == getattr(expected, name), name
        assert len(estimate.segments) == 1 and "runs throughout" in " ".join(estimate.assumptions)


def test_the_round_that_drafts_nothing_needs_no_acceptance() -> None:
    estimate = Pricer(DEVICE, SHAPES, 1, 100, 200).estimate(plan_of("layers_by_position"), None)
    assert isinstance(estimate, Estimate)
    assert estimate.tokens_per_round.mean == 1.0 and estimate.rounds.mean == 200
    assert len(estimate.segments) == 3
    missing = Pricer(DEVICE, SHAPES, 1, 100, 64).estimate(first(16), None)
    assert isinstance(missing, Unpriced) and "no acceptance profile" in missing.reason


@pytest.mark.parametrize("then", [0, 2])
def test_prices_of_cells_are_those_of_each_load(then: int) -> None:
    rows = [[(place * 5 + p) % 7 // 2 for place in range(80)] for p in range(5)]
    plan, profile = first(24, 4, then), lengths(*rows)
    batch, prompt = np.array([1, 4, 32, 4]), np.array([40, 40, 500, 2000])
    estimate = Pricer(DEVICE, SHAPES, batch, prompt, 64).estimate(plan, profile)
    assert isinstance(estimate, Estimate)
    for cell, b, p in zip(estimate.cells(), batch.tolist(), prompt.tolist(), strict=True):
        alone = Pricer(DEVICE, SHAPES, b, p, 64).estimate(plan, profile)
        assert isinstance(alone, Estimate)
        for name in (*NUMBERS[:12], "segments"):
            assert _flat(getattr(cell, name)) == pytest.approx(_flat(getattr(alone, name))), name


def _flat(value: object) -> list[float]:
    if isinstance(value, tuple):
        return [number for part in value for number in _flat(part)]
    if isinstance(value, OutputSegment):
        return [value.start, value.stop, *np.ravel(value.share)]
    names = getattr(value, "__slots__", ())
    return [float(getattr(value, name)) for name in names] if names else [float(value)]  # type: ignore


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.05, 0.95),
    st.integers(1, 6),
    st.sampled_from([0, 1, 2]),
    st.integers(8, 60),
    st.integers(1, 64),
)
def test_it_lies_between_its_rounds(
    alpha: float, drafted: int, then: int, bound: int, batch: int
) -> None:
    profile, output = AcceptanceProfile.from_hazards([[alpha]], trials=500), 64
    estimate = priced(first(bound, drafted, then), profile, batch, output)
    ends = [priced(greedy_chain(drafted), profile, batch, output)]
    ends.append(priced(greedy_chain(then) if then else parse_plan(PLAIN), profile, batch, output))
    for name, field in (("tokens_per_round", "mean"), ("seconds_per_round", "median"),
                        ("seconds_per_token", "median")):  # fmt: skip
        low, high = sorted(getattr(getattr(end, name), field) for end in ends)
        value = getattr(getattr(estimate, name), field)
        # contexts of the segments are shorter or longer than the mean of the request
        assert low * (1 - 5e-3) <= value <= high * (1 + 5e-3), name
    for interval in (estimate.rounds, estimate.tokens_per_round):
        assert interval.low <= interval.mean <= interval.high
    assert (
        estimate.decode_seconds.low
        <= estimate.decode_seconds.median
        <= estimate.decode_seconds.high
    )
    more = priced(first(bound, drafted, then), profile, batch, output + 1)
    assert more.decode_seconds.median > estimate.decode_seconds.median
    assert more.rounds.mean > estimate.rounds.mean


@settings(max_examples=8, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(1, 6))
def test_longer_drafting_takes_no_more_rounds(alpha: float, drafted: int) -> None:
    profile = AcceptanceProfile.from_hazards([[alpha]])
    counts = [sum(rounds_of(first(bound, drafted), profile, 64)) for bound in range(1, 58, 4)]
    assert all(after <= before + 1e-9 for before, after in pairwise(counts))
    assert counts[0] < 64 and counts[-1] < counts[0]


def test_errors_of_one_model_are_shared_by_the_rounds() -> None:
    assert isinstance(DEVICE, AnalyticDevice)
    profile = AcceptanceProfile.from_hazards([[0.6]])
    ends = [priced(plan, profile).own_error for plan in (greedy_chain(4), parse_plan(PLAIN))]
    mixed = priced(first(24), profile).own_error
    assert 0.9 * min(ends) < mixed <= max(ends)
