"""The server in closed form: textbook queues, and the same server simulated step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.serving.mean_values import under_load
from specplan.cost_models.serving.server import Server, StepTimes, Traffic, interpolate
from specplan.cost_models.serving.simulation import arrivals, simulate

BATCHES = np.array([1.0, 2, 4, 8, 16, 32, 64])


def plan(
    fixed: float, each: float, tokens: float, prefill: float, first_steps: int = 0
) -> StepTimes:
    """A step of `fixed + each n` seconds."""
    step = fixed + each * BATCHES
    return StepTimes(
        BATCHES,
        step,
        np.full(7, tokens),
        np.array(0.9 * prefill),
        np.array(0.1 * prefill),
        first_steps,
    )


def most_borne(server: Server, times: StepTimes, prompt: float, output: float) -> float:
    """The rate that is just borne."""
    low, high = 1e-3, 1e4
    for _ in range(50):
        rate = math.sqrt(low * high)
        borne = under_load(server, times, Traffic(rate, prompt, output)).borne
        low, high = (rate, high) if borne else (low, rate)
    return low


@pytest.mark.parametrize("used", [0.2, 0.5, 0.9])
def test_a_device_that_only_reads_prompts_is_pollaczek_and_khinchine(used: float) -> None:
    """M/D/1: the mean wait is `used prefill / (2 (1 - used))`."""
    times, server = plan(0.006, 0.0, 1.0, 0.05), Server("elsewhere")
    loads = under_load(server, times, Traffic(used / 0.05, 100, 1.5))
    assert float(loads.ttft) == pytest.approx(0.05 + used * 0.05 / (2.0 * (1.0 - used)))


@pytest.mark.parametrize("rate", [0.5, 2.0, 3.5])
def test_steps_as_long_as_their_requests_are_the_processor_sharing_queue(rate: float) -> None:
    """M/G/1 processor sharing: `load / (1 - load)` requests, whatever the work's distribution."""
    times = plan(0.0, 0.01, 1.0, 0.0)  # a token of one request takes 0.01 s of the device
    server = Server("elsewhere", running=64)
    load = rate * 0.01 * 25
    if load > 0.85:
        server, times = (
            Server("elsewhere", running=600),
            StepTimes(
                np.array([1.0, 600.0]),
                np.array([0.01, 6.0]),
                np.ones(2),
                np.array(0.0),
                np.array(0.0),
            ),
        )
    loads = under_load(server, times, Traffic(rate, 0, 26))
    assert float(loads.decoding) == pytest.approx(load / (1.0 - load), rel=1e-3)


def test_a_server_without_company_takes_the_time_of_one_request() -> None:
    times = plan(0.006, 0.0001, 3.0, 0.05, first_steps=1)
    loads = under_load(Server("first"), times, Traffic(1e-6, 1024, 301))
    assert float(loads.request) == pytest.approx(0.05 + (301 + 1) / 3 * 0.0061, rel=1e-4)
    assert float(loads.ttft) == pytest.approx(0.05 + 0.0061, rel=1e-4)
    assert float(loads.tpot) == pytest.approx(0.0061 / 3, rel=0.02)


CASES = [
    (order, chunk, lengths, step, tokens)
    for order in ("first", "chunked", "elsewhere")
    for chunk, lengths in ((512, (1024, 512)), (8192, (1024, 512)), (8192, (128, 128)))
    for step, tokens in (((0.006, 5e-5), 1.0), ((0.01, 3e-4), 2.8))
]


@pytest.mark.parametrize(("order", "chunk", "lengths", "step", "tokens"), CASES)
def test_the_simulated_server_at_half_and_four_fifths_of_its_most(
    order: str, chunk: int, lengths: tuple[int, int], step: tuple[float, float], tokens: float
) -> None:
    """Means of 2,000 requests; `benchmarks/serving.py` compares more and longer runs."""
    server = Server(order, 64, chunk)  # type: ignore[arg-type]
    times = plan(*step, tokens, 2e-5 * lengths[0])
    most = most_borne(server, times, *lengths)
    for share, within in ((0.5, 0.06), (0.8, 0.12)):
        traffic = Traffic(most * share, *lengths)
        loads, served = under_load(server, times, traffic), simulate(server, times, traffic)
        assert float(loads.ttft) == pytest.approx(served.ttft.mean(), rel=within)
        assert float(loads.tpot) == pytest.approx(served.tpot.mean(), rel=within)
        assert served.throughput == pytest.approx(traffic.rate, rel=0.08)
    over = simulate(server, times, Traffic(most * 1.4, *lengths), requests=1500)
    assert over.throughput < most * 1.15  # what the closed form says is not borne, is not


@pytest.mark.parametrize(("order", "chunk"), [("first", 512), ("chunked", 8192)])
def test_long_prompts_near_the_most_that_a_server_bears(order: str, chunk: int) -> None:
    """One prompt a prefill, or two a step: others wait for the next, and all wait for prompts."""
    server = Server(order, 64, chunk)  # type: ignore[arg-type]
    times = plan(0.01, 3e-4, 2.8, 2e-5 * 4096)
    traffic = Traffic(0.9 * most_borne(server, times, 4096, 256), 4096, 256)
    loads = under_load(server, times, traffic)
    served = simulate(server, times, traffic, requests=4000, seed=1)
    assert float(loads.ttft) == pytest.approx(served.ttft.mean(), rel=0.2)
    assert float(loads.tpot) == pytest.approx(served.tpot.mean(), rel=0.1)


@settings(max_examples=40)
@given(
    st.sampled_from(["first", "chunked", "elsewhere"]),
    st.floats(0.05, 0.9),
    st.floats(1.0, 1.5),
    st.floats(1.0, 4.0),
)
def test_more_load_and_slower_steps_never_help(
    order: str, share: float, slower: float, tokens: float
) -> None:
    server = Server(order, 64, 2048)  # type: ignore[arg-type]
    times = plan(0.008, 1e-4, tokens, 0.02)
    rate = share * most_borne(server, times, 1024, 256)
    calm = under_load(server, times, Traffic(rate * 0.8, 1024, 256))
    loads = under_load(server, times, Traffic(rate, 1024, 256))
    slow = under_load(
        server, plan(0.008 * slower, 1e-4 * slower, tokens, 0.02), Traffic(rate, 1024, 256)
    )
    for name in ("ttft", "tpot", "request"):
        here = float(getattr(loads, name))
        assert float(getattr(calm, name)) <= here * (1 + 1e-9)
        there = float(getattr(slow, name))
        # Slower steps gather more prompts for each prefill, which saves a little of the device.
        assert np.isnan(there) or there >= here * (1 - 1e-2)


def test_many_worlds_at_once_are_each_their_own() -> None:
    rng = np.random.default_rng(3)
    step = rng.uniform(0.005, 0.02, (6, 1)) + 1e-4 * BATCHES
    tokens, prefill = rng.uniform(1.0, 3.0, (6, 7)), rng.uniform(0.01, 0.05, 6)
    server, traffic = Server("chunked", 64, 1024), Traffic(13.0, 1500, 300)
    loads = under_load(server, StepTimes(BATCHES, step, tokens, prefill, prefill / 9), traffic)
    for world in range(6):
        one = StepTimes(BATCHES, step[world], tokens[world], prefill[world], prefill[world] / 9)
        alone = under_load(server, one, traffic)
        for name in ("borne", "ttft", "tpot", "request", "decoding"):
            np.testing.assert_allclose(getattr(loads, name)[world], getattr(alone, name))
    assert loads.borne.any() and not loads.borne.all()


def test_bursts_lengthen_waiting_in_both() -> None:
    times, server = plan(0.006, 5e-5, 1.0, 0.05), Server("first", 64, 2048)
    waits = []
    for burstiness in (0.25, 1.0, 4.0):
        traffic = Traffic(9.0, 2048, 128, burstiness)
        gaps = np.diff(arrivals(traffic, 50_000, np.random.default_rng(1)))
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)
        waits.append(
            (
                float(under_load(server, times, traffic).ttft),
                simulate(server, times, traffic).ttft.mean(),
            )
        )
    closed, simulated = zip(*waits, strict=True)
    assert closed[0] < closed[1] < closed[2] and simulated[0] < simulated[1] < simulated[2]


def test_between_batch_sizes_times_are_linear() -> None:
    values = interpolate(np.array([2.0, 4.0]), np.array([[1.0, 3.0]]), np.array([1.0, 3.0, 9.0]))
    assert values.tolist() == [[1.0, 2.0, 3.0]]
