"""Prompts read by other devices: closed form against simulation, and figures by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specplan.cost_models.serving.mean_values import under_load
from specplan.cost_models.serving.server import Server, Traffic
from specplan.cost_models.serving.simulation import simulate
from tests.cost_models.serving.test_mean_values import most_borne, plan


@pytest.mark.parametrize(("readers", "used"), [(1, 0.7), (2, 0.6), (4, 0.8), (8, 0.7)])
def test_several_readers_are_the_queue_of_constant_times(readers: int, used: float) -> None:
    """M/D/c, simulated: 40,000 prompts that c readers take one by one."""
    rng = np.random.default_rng(readers)
    rate = used * readers
    arrival, free, waits = 0.0, np.zeros(readers), []
    for gap in rng.exponential(1.0 / rate, 40_000):
        arrival += gap
        first = int(free.argmin())
        begin = max(arrival, free[first])
        free[first] = begin + 1.0
        waits.append(begin - arrival)
    times = replace(plan(0.0, 1e-9, 1.0, 1.0, first_steps=1), transfer=0.25)
    loads = under_load(Server("elsewhere", readers=readers), times, Traffic(rate, 100, 2))
    # the transfer, at a quarter of what reading takes, delays and never holds up
    assert float(loads.ttft) - 1.25 == pytest.approx(np.mean(waits), rel=0.1)
    borne = most_borne(Server("elsewhere", readers=readers), times, 100, 2)
    assert borne == pytest.approx(readers, rel=1e-3)


@pytest.mark.parametrize(
    ("readers", "transfer", "first_steps"), [(2, 0.01, 1), (3, 0.12, 0), (8, 0.02, 1)]
)
def test_the_simulated_pools_at_half_and_four_fifths_of_their_most(
    readers: int, transfer: float, first_steps: int
) -> None:
    """A link that takes longer than the reading (0.12 s for 0.08 s) is what fills up."""
    server = Server("elsewhere", 64, readers=readers)
    times = replace(plan(0.006, 5e-5, 2.0, 0.08, first_steps), transfer=transfer)
    most = most_borne(server, times, 4096, 200)
    if transfer > 0.08:
        assert most == pytest.approx(readers / transfer, rel=1e-3)
    for share, within in ((0.5, 0.06), (0.8, 0.12)):
        traffic = Traffic(most * share, 4096, 200)
        loads, served = under_load(server, times, traffic), simulate(server, times, traffic)
        assert float(loads.ttft) == pytest.approx(served.ttft.mean(), rel=within)
        assert float(loads.tpot) == pytest.approx(served.tpot.mean(), rel=within)
        assert float(loads.request) == pytest.approx(served.request.mean(), rel=within)
        assert served.throughput == pytest.approx(traffic.rate, rel=0.08)
