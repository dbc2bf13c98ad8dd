"""The price of requests that branch: several requests whose common beginning is read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.threads import Load, ThreadsPrice, price_threads
from specplan.planner.methods.autoregressive import METHOD
from tests.planner.example_facts import example_facts


def test_a_branching_request_is_priced_as_requests_with_a_prefix(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    (family,) = METHOD.choices(facts)
    plan = METHOD.plan(facts, family.settings[0])
    gains = {}
    for count in (1, 4, 16):
        load = Load(count, prefix_tokens=4000, own_tokens=20, output_tokens=100)
        price = price_threads(plan, facts.device, facts.shapes, None, load)
        assert isinstance(price, ThreadsPrice)
        parts = [
            Pricer(facts.device, facts.shapes, rows, 4020, 100).estimate(plan, None)
            for rows in (1, count)
        ]  # fmt: skip
        one, whole = parts
        assert isinstance(one, Estimate) and isinstance(whole, Estimate)
        assert price.in_turn.median == pytest.approx(count * one.request_seconds.median)
        # decoding is that of a batch; of its prompts the prefix is read once
        decoding = whole.decode_seconds.median
        prefix = Pricer(facts.device, facts.shapes, 1, 4000, 100).prefill(plan).median
        assert decoding + prefix < price.at_once.median
        assert count == 1 or price.at_once.median < whole.request_seconds.median
        gains[count] = price.gain
    assert gains[1] == pytest.approx(1.0, abs=0.05) and 3 < gains[4] < 4 < gains[16] < 16
