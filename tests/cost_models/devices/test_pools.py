"""Devices in one pool or two: what each makes of prompts, by hand and on the front."""

from __future__ import annotations

import pytest

from specplan.cost_models.devices.parallel import Split, pareto_front, price_split
from specplan.cost_models.devices.pools import READING, PoolSearch
from tests.cost_models.devices.test_parallel import LLAMA, device


def test_pools_by_hand_and_on_the_front() -> None:
    one, prompt, output = device("h100-sxm"), 2000, 400
    search = PoolSearch(LLAMA, one, 4, prompt, output)
    prices = search.prices((1, 16, 64))
    by_name = {(str(price.pools), price.requests): price for price in prices}
    assert all(price.pools.devices == 4 for price in prices)

    reading = one.prefill_seconds(LLAMA, 1, prompt).median
    step = price_split(Split(1, replicas=2), LLAMA, one, 16, prompt + output // 2)
    two = by_name["2 prefill (2 replicas of TP 1) + 2 decode (2 replicas of TP 1)", 16]
    assert step is not None and two.tpot == step.tpot
    assert two.rate == pytest.approx(16 / (output * step.tpot))
    moved = prompt * LLAMA.kv_bytes_per_token / 50e9
    assert two.ttft == pytest.approx(reading + moved + step.tpot)
    assert two.per_device == pytest.approx(16 / step.tpot / 4)
    assert two.rate * reading <= READING * 2

    # In one pool every replica's second has its steps and its prompts.
    together = by_name["4 replicas of TP 1, prompts in between", 16]
    alone = price_split(Split(1, replicas=4), LLAMA, one, 16, prompt + output // 2)
    assert alone is not None
    each = together.rate / 4
    assert each * reading + each * output * alone.tpot / 4 == pytest.approx(1.0)
    assert together.tpot == pytest.approx(alone.tpot / (1 - each * reading))

    # Groups that cannot keep up are left out, and both kinds are worth having somewhere.
    slow = "1 prefill (TP 1) + 3 decode (3 replicas of TP 1)"
    assert (slow, 64) not in by_name
    front = pareto_front(PoolSearch(LLAMA, one, 4, 8000, 200).prices((1, 4, 8, 16, 64)))
    assert {bool(price.pools.reading) for price in front} == {True, False}
