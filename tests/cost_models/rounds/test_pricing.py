"""Rounds and plans priced op by op, against sums done by hand."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import TEXT, Model
from specplan.cost_models.acceptance.evidence.base import lag_probabilities
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import (
    ForwardRow,
    MeasuredTable,
    OpRow,
    PrefillRow,
    Provenance,
    RoundRow,
)
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.formulas.closed_forms import expected_tokens
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.memory.plan_memory import largest_batch, plan_memory, speculative_slots
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import (
    PricedOp,
    RoundPrice,
    Unpriced,
    own_error,
    price_round,
    read_round,
    round_cost,
)
from specplan.ir.plan import Plan, Round
from specplan.ir.text.parser import parse_plan
from tests.cost_models.models.public_shapes import CONFIGS, llama, shape
from tests.cost_models.small_trees import chain
from tests.ir.plans_on_disk import NAMES, plan_of, text_of
from tests.plan_texts import drafted, greedy_chain

DRAFT = ModelShape.from_config(llama(2048, 4, 16, 16, 5632, 32000), name="draft")
SHAPES = {"target": shape("llama-2-7b"), "draft": DRAFT}
PLAIN = text_of("autoregressive")
LOOKUP = drafted(
    "  %t0 = root\n  %c = lookup @text %t0 at=%t0 match=[1, 3] length=3", name="lookup", draft=False
)


def measured(without: tuple[str, ...] = ()) -> MeasuredDevice:
    """Forwards take 100 (target) or 10 (draft) + tokens + context / 1000 seconds."""
    here = Provenance("x", "eager", 1, "2026-11-21", 1e12)
    table = MeasuredTable("here", here)
    for model, base in ((SHAPES["target"], 100.0), (DRAFT, 10.0)):
        for tokens in (1, 64):
            for context in (0, 4000):
                seconds = base + tokens + context / 1000
                table.add(
                    ForwardRow(
                        seconds,
                        seconds,
                        seconds,
                        3,
                        model=model.digest,
                        dtype=model.dtype,
                        batch=1,
                        tokens=tokens,
                        context=context,
                    )
                )
            table.add(
                PrefillRow(
                    base * tokens,
                    base * tokens,
                    base * tokens,
                    3,
                    model=model.digest,
                    dtype=model.dtype,
                    batch=1,
                    tokens=tokens,
                )
            )
    for op, base in (("grow:best", 0.1), ("accept:greedy", 0.2), ("lookup", 0.3)):
        if op not in without:
            for width in (0, 16):
                seconds = base + width / 100
                table.add(OpRow(seconds, seconds, seconds, 3, op=op, batch=1, width=width))
    table.add(RoundRow(0.5, 0.5, 0.5, 3, batch=1))
    return MeasuredDevice(table)


def price(
    plan: Plan, device: MeasuredDevice, context: float = 0.0, lag: Mapping[str, float] | None = None
) -> RoundPrice:
    round_price = price_at(plan, plan.rounds[0], RoundPricer(device, SHAPES, 1, context), lag)
    assert isinstance(round_price, RoundPrice), round_price
    return round_price


def price_at(
    plan: Plan, item: Round, pricer: RoundPricer, lag: Mapping[str, float] | None = None
) -> RoundPrice | Unpriced:
    demands = read_round(plan, item)
    return demands if isinstance(demands, Unpriced) else price_round(demands, pricer, lag or {})


def test_a_chain_is_the_sum_of_its_ops() -> None:
    """First draft step: root alone, or root and one more where the drafter lags."""
    verify, grow, judge, glue = 105.0, 0.11, 0.24, 0.5
    later = 3 * 11.0 + (0 + 1 + 2) / 1000  # each at the context that the nodes before it made
    rest = verify + 4 * grow + judge + glue
    price_no_lag = price(greedy_chain(4), measured(), lag={"dkv": 0.0})
    assert price_no_lag.seconds.median == pytest.approx(11.0 + later + rest)
    assert price(greedy_chain(4), measured()).seconds.median == pytest.approx(12.0 + later + rest)
    half = price(greedy_chain(4), measured(), lag={"dkv": 0.5})
    assert half.seconds.median == pytest.approx(11.5 + later + rest)


def test_breakdown_adds_up_and_names_ops() -> None:
    priced = price(greedy_chain(4), measured(), context=100.0)
    assert sum(part.seconds.median for part in priced.breakdown) == pytest.approx(
        priced.seconds.median
    )
    by_name = {(part.op, part.model, part.width): part.times for part in priced.breakdown}
    assert by_name["forward", "draft", 2] == 1
    assert by_name["forward", "draft", 1] == 3
    assert by_name["forward", "target", 5] == 1
    assert by_name["grow:best", None, 1] == 4
    assert by_name["accept:greedy", None, 4] == 1
    assert by_name["round", None, 1] == 1


def test_resources_of_a_round_are_those_of_its_forwards() -> None:
    plan = greedy_chain(1)
    demands = round_demands(plan, plan.rounds[0])
    both = forward_cost(SHAPES["target"], 1, 2, 100) + forward_cost(DRAFT, 1, 1, 100)
    assert round_cost(demands, RoundPricer(measured(), SHAPES, 1, 100), {"dkv": 0.0}) == both


def test_plain_plan_is_one_step_per_token() -> None:
    plan = parse_plan(PLAIN)
    estimate = Pricer(measured(), SHAPES, batch=1, prompt_tokens=64, output_tokens=20).estimate(
        plan, None
    )
    assert isinstance(estimate, Estimate), estimate
    round_seconds = 101.0 + 74 / 1000 + 0.2 + 0.5
    assert estimate.seconds_per_round.median == pytest.approx(round_seconds)
    assert estimate.prefill.median == pytest.approx(100.0 * 64)
    assert estimate.decode_seconds.median == pytest.approx(20 * round_seconds)
    assert estimate.request_seconds.median == pytest.approx(6400 + 20 * round_seconds)
    assert estimate.ttft.median == pytest.approx(6400 + round_seconds)
    assert estimate.decode_tokens_per_second.mean == pytest.approx(1 / round_seconds)
    assert estimate.tokens_per_second.mean == pytest.approx(20 / estimate.request_seconds.median)
    assert estimate.tokens_per_round.mean == 1.0
    assert not estimate.extrapolated


def test_a_cached_prefix_takes_memory_and_context_but_no_prefill() -> None:
    def priced(cached: int) -> Estimate:
        pricer = Pricer(measured(), SHAPES, 1, 64, 20, cached_prefix=cached)
        estimate = pricer.estimate(parse_plan(PLAIN), None)
        assert isinstance(estimate, Estimate)
        return estimate

    whole, estimate = priced(0), priced(24)
    round_seconds = 101.0 + 74 / 1000 + 0.2 + 0.5
    assert estimate.prefill.median == pytest.approx(100.0 * (64 - 24))
    assert estimate.ttft.median == pytest.approx(4000 + round_seconds)
    assert estimate.request_seconds.median == pytest.approx(4000 + 20 * round_seconds)
    assert estimate.seconds_per_round == whole.seconds_per_round and estimate.memory == whole.memory
    # the last token alone is a pass over all weights, whatever a prompt's marginal token takes
    assert priced(63).prefill.median == pytest.approx(101.0 + 63 / 1000)
    assert priced(64).prefill == priced(63).prefill


def test_prefill_behind_a_cached_prefix_by_its_operations() -> None:
    """40 tokens of Llama-2-7B that attend to 24 cached ones and to those before them."""
    device = AnalyticDevice("ideal", 1e12, 1e30, {"float16": 1e12, "bfloat16": 1e12})
    products = 2 * 32 * (4 * 4096**2 + 3 * 4096 * 11008) * 40
    attention = 32 * 4 * 4096 * sum(24 + place for place in range(1, 41))
    head = 2 * 4096 * 32000
    seconds = device.prefill_seconds(SHAPES["target"], 1, 64, 24)
    assert seconds.median == pytest.approx((products + attention + head) / 1e12, rel=1e-6)


def test_time_per_token_is_round_over_tokens() -> None:
    acceptance = AcceptanceProfile.from_hazards([[0.8]], trials=500)
    estimate = Pricer(measured(), SHAPES, batch=1, prompt_tokens=64, output_tokens=64).estimate(
        greedy_chain(4), acceptance
    )
    assert isinstance(estimate, Estimate)
    assert estimate.tokens_per_round.mean == pytest.approx(expected_tokens(0.8, 4))
    assert estimate.seconds_per_token.median == pytest.approx(
        estimate.seconds_per_round.median / estimate.tokens_per_round.mean
    )
    assert (
        estimate.decode_tokens_per_second.low
        < estimate.decode_tokens_per_second.mean
        < estimate.decode_tokens_per_second.high
    )
    assert estimate.assumptions == ()
    # the first draft step is as wide as its mean: full acceptance leaves one token behind
    no_lag = price(greedy_chain(4), measured(), 96.0, {"dkv": 0.8**4})
    assert estimate.seconds_per_round.median == pytest.approx(no_lag.seconds.median)


def test_lag_of_trees_and_batches() -> None:
    plan = plan_of("static_tree")
    demands = round_demands(plan, plan.rounds[0])
    (tree,) = demands.judged
    assert tree.nodes == 8
    uniform = (1 / 9,) * 9
    lags = lag_probabilities(demands.not_run, uniform, 1)
    assert lags["kv"] == 0.0
    assert lags["dkv"] == pytest.approx(5 / 9)  # nodes 2, 4, 5, 6, 7 never ran in the draft
    assert lag_probabilities(demands.not_run, uniform, 3)["dkv"] == pytest.approx(1 - (4 / 9) ** 3)


def test_lookup_and_batches_that_end_together() -> None:
    plan = parse_plan(LOOKUP)
    acceptance = AcceptanceProfile(AcceptanceKey(TEXT), Lengths(((3, 2, 1, 0) * 8, (0,) * 32)))
    device = load_device("h200")
    one, two = (
        Pricer(device, SHAPES, batch=batch, prompt_tokens=64, output_tokens=32).estimate(
            plan, acceptance
        )
        for batch in (1, 2)
    )
    assert isinstance(one, Estimate) and isinstance(two, Estimate)
    assert one.rounds.mean == 20  # 8 rounds, and 32
    assert two.rounds.mean == 0.25 * 8 + 0.75 * 32
    assert one.tokens_per_round.mean == pytest.approx(64 / 40)
    assert [part.width for part in one.breakdown if part.op == "forward"] == [4]


def test_what_cannot_be_priced_is_data() -> None:
    def refusal(
        plan: Plan,
        acceptance: AcceptanceProfile | None = None,
        without: tuple[str, ...] = (),
        shapes: Mapping[str, ModelShape] = SHAPES,
    ) -> str:
        unpriced = Pricer(
            measured(without), shapes, batch=1, prompt_tokens=64, output_tokens=64
        ).estimate(plan, acceptance)
        assert isinstance(unpriced, Unpriced)
        return str(unpriced)

    alpha = AcceptanceProfile.from_hazards([[0.8]])
    assert "no acceptance profile" in refusal(greedy_chain(3))
    assert "specplan profile device" in refusal(greedy_chain(3), alpha, ("grow:best",))
    assert "grow %t" in refusal(greedy_chain(3), alpha, ("grow:best",))
    assert "model 'draft'" in refusal(greedy_chain(3), alpha, shapes={"target": SHAPES["target"]})
    assert "layers 0:8" in refusal(plan_of("early_exit_verified"), alpha)
    assert "'load' was not measured" in refusal(plan_of("skipped_layers"), alpha)
    assert "shape depends on data" in refusal(plan_of("growing_tree"), alpha)
    other = ModelShape.from_config(CONFIGS["llama-2-7b"] | {"vocab_size": 5}, name="other")
    assert "'other'" in refusal(parse_plan(PLAIN), shapes={"target": other})


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_of_the_language_is_priced_or_refused(name: str) -> None:
    """Never an exception: rounds that a data sheet can price are, the others say why."""
    plan = plan_of(name)
    shapes = {model.name: SHAPES["target"] for model in plan.models}
    for item in plan.rounds:
        priced = price_at(plan, item, RoundPricer(load_device("h200"), shapes, 1, 512.0))
        if isinstance(priced, Unpriced):
            assert priced.reason
            assert name in {"skipped_layers", "prompt_chunks"}, priced
        else:
            assert 0.0 < priced.seconds.low <= priced.seconds.median <= priced.seconds.high
    acceptance = AcceptanceProfile.from_hazards([[0.7]])
    estimate = Pricer(
        load_device("h200"), shapes, batch=2, prompt_tokens=100, output_tokens=50
    ).estimate(plan, acceptance)
    assert isinstance(estimate, Estimate | Unpriced)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
def test_lanes_take_what_the_device_does_not_hide(overlap: float) -> None:
    """One after another on a device whose sheet says nothing; the longest alone where both fit."""
    plan, device = plan_of("parallel_draft_verify"), load_device("h200")
    assert isinstance(device, AnalyticDevice) and device.lane_overlap == 0.0
    pricer = RoundPricer(replace(device, lane_overlap=overlap), SHAPES, 1, 512.0)
    priced = price_at(plan, plan.rounds[0], pricer)
    assert isinstance(priced, RoundPrice)
    lanes = {"a": 0.0, "b": 0.0}
    for step in round_demands(plan, plan.rounds[0]).steps:
        if step.lane is not None:
            one = pricer.op(step) if isinstance(step, OpDemand) else pricer.forward(step, 1.0)
            lanes[step.lane] += one.median
    hidden = sum(part.seconds.median for part in priced.breakdown) - priced.seconds.median
    assert min(lanes.values()) > 0.0
    assert hidden == pytest.approx(overlap * min(lanes.values()))
    assert any(f"hides {overlap:.0%}" in assumption for assumption in priced.assumptions)


@given(st.integers(1, 16), st.integers(1, 64), st.integers(1, 4000))
@settings(max_examples=20)
def test_longer_chains_take_longer(length: int, batch: int, context: int) -> None:
    device = load_device("a100-sxm-80gb")
    prices = [
        price_at(plan, plan.rounds[0], RoundPricer(device, SHAPES, batch, context))
        for plan in (greedy_chain(length), greedy_chain(length + 1))
    ]
    assert all(isinstance(each, RoundPrice) for each in prices)
    assert prices[0].seconds.median < prices[1].seconds.median  # type: ignore[union-attr]


def test_memory_parts() -> None:
    plan = greedy_chain(4)
    assert speculative_slots(plan) == 5
    memory = plan_memory(plan, SHAPES, 2, 300, 200)
    parts = {part.name: part.bytes for part in memory.parts}
    assert parts["weights of target"] == SHAPES["target"].parameters * 2
    assert parts["weights of draft"] == DRAFT.parameters * 2
    assert parts["cache @kv"] == 2 * (300 + 5 + 1) * 524288
    assert parts["cache @dkv"] == 2 * (300 + 5 + 1) * DRAFT.kv_bytes_per_token
    assert memory.largest.name == "weights of target"
    assert memory.total == sum(parts.values())
    # llama-2-7b weighs 13.5 GB and 0.5 MB per token
    most = largest_batch(plan, SHAPES, 24e9, 2048)
    assert plan_memory(plan, SHAPES, most, 2048).total <= 24e9
    assert plan_memory(plan, SHAPES, most + 1, 2048).total > 24e9
    assert largest_batch(plan, SHAPES, 10e9, 2048) == 0


def test_chain_shape_of_the_plan_reaches_the_profile() -> None:
    ranks = ((0, 0, 0, 0, -1) * 10, (0, -1) * 20)
    acceptance = AcceptanceProfile(AcceptanceKey(Model("draft")), Ranks(ranks))
    for length in (1, 2, 4):
        estimate = Pricer(measured(), SHAPES, batch=1, prompt_tokens=64, output_tokens=16).estimate(
            greedy_chain(length), acceptance
        )
        assert isinstance(estimate, Estimate)
        assert estimate.tokens_per_round == acceptance.tokens_per_round(*chain(length))


def test_an_error_of_a_part_that_takes_no_time_counts_whole() -> None:
    """Parts of one model err together; what all times share is left out, part by part."""
    parts = [
        PricedOp("forward", "target", 1, 1, Seconds(3.0, 2.4, 3.6)),
        PricedOp("forward", "target", 4, 1, Seconds(1.0, 0.8, 1.2)),
        PricedOp("lookup", None, 1, 1, Seconds(0.0, 0.0, 0.3)),
    ]
    price = RoundPrice(Seconds(4.0, 3.0, 5.0), tuple(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = own_error(price, 0.12)
    of_passes = 4.0 * (0.2**2 - 0.12**2) ** 0.5
    assert error == pytest.approx((of_passes**2 + 0.3**2) ** 0.5 / 4.0)
