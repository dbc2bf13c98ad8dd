"""The law of a loaded server between batch sizes: closed form, brute force, published numbers."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.formulas.formula import load_formulas
from specplan.cost_models.serving.loaded_server import between, most_served, requests_in_flight
from tests.cost_models.formulas.test_break_even import GOODPUT

BATCHES = np.array([1.0, 8.0, 32.0, 128.0])
NO_LIMIT = np.empty((0, 4))
SECONDS = st.lists(st.floats(0.05, 50.0), min_size=4, max_size=4).map(np.array)
LOADS = st.floats(0.01, 100.0)


@pytest.mark.parametrize(("idle", "slope"), [(2.0, 0.02), (0.3, 0.004), (10.0, 0.0)])
def test_affine_times_obey_the_closed_form(idle: float, slope: float) -> None:
    """a / (1 - b load), and load times that in flight, as the law prints it."""
    law = load_formulas("loaded_server")
    most = 128.0 / (idle + slope * 128.0)
    for load in np.linspace(0.05, 0.999, 12) * most:
        known = {"idle_seconds": idle, "slope_seconds": slope, "load": load}
        number = float(law.value("in_flight", **known))
        if number < 1.0:
            continue
        times = idle + slope * BATCHES
        found = requests_in_flight(BATCHES, times, float(load))
        assert float(found) == pytest.approx(number, rel=1e-12)
        seconds = float(between(BATCHES, times, found))
        assert seconds == pytest.approx(float(law.value("seconds", **known)), rel=1e-12)
        assert seconds == pytest.approx(idle / (1.0 - slope * load), rel=1e-12)


@given(SECONDS, LOADS)
def test_the_least_number_at_which_as_many_leave_as_arrive(
    seconds: np.ndarray, load: float
) -> None:
    """By looking at very many numbers in flight."""
    numbers = np.unique(np.concatenate([np.linspace(0.001, 128.0, 100_001), BATCHES]))
    leave = numbers / np.interp(numbers, BATCHES, seconds)
    enough = numbers[leave >= load]
    found = float(requests_in_flight(BATCHES, seconds, load))
    if not len(enough):
        assert np.isnan(found)
        return
    assert found == pytest.approx(enough[0], abs=0.00129)
    assert found == pytest.approx(load * float(between(BATCHES, seconds, np.array(found))))


@given(SECONDS, LOADS, LOADS, st.floats(1.0, 3.0))
def test_more_load_and_slower_requests_never_lower_the_number_in_flight(
    seconds: np.ndarray, first: float, second: float, slower: float
) -> None:
    less, more = sorted((first, second))
    numbers = [float(requests_in_flight(BATCHES, seconds, load)) for load in (less, more)]
    numbers.append(float(requests_in_flight(BATCHES, seconds * slower, more)))
    for before, after in pairwise(numbers):
        assert np.isnan(after) or after >= before * (1 - 1e-12)
        assert not np.isnan(before) or np.isnan(after)
    if not np.isnan(numbers[1]):  # the time of a request, by Little's law, follows its number
        times = [float(between(BATCHES, seconds, np.array(number))) for number in numbers[:2]]
        assert [numbers[0] / less, numbers[1] / more] == pytest.approx(times)


@given(SECONDS, SECONDS, st.floats(0.05, 50.0), SECONDS, st.floats(0.05, 50.0))
def test_most_served_within_limits(
    seconds: np.ndarray,
    first: np.ndarray,
    most_first: float,
    second: np.ndarray,
    most_second: float,
) -> None:
    slack = np.array([most_first - first, most_second - second])
    numbers = np.unique(np.concatenate([np.linspace(1.0, 128.0, 50_001), BATCHES]))
    kept = (np.interp(numbers, BATCHES, first) <= most_first) & (
        np.interp(numbers, BATCHES, second) <= most_second
    )
    rates = np.where(kept, numbers / np.interp(numbers, BATCHES, seconds), 0.0)
    found = float(most_served(BATCHES, seconds, slack))
    assert found >= rates.max() * (1 - 1e-9)
    if kept.sum() > 1:
        assert found == pytest.approx(rates.max(), rel=0.15)
    free = float(most_served(BATCHES, seconds, NO_LIMIT))
    assert found <= free * (1 + 1e-12)
    assert free == pytest.approx((BATCHES / seconds).max())


def test_limits_are_kept_up_to_where_they_bind() -> None:
    """T(N) = 2 + 0.05 N may be 4 s at 40 in flight, and then 10 per second leave."""
    times = 2.0 + 0.05 * BATCHES
    assert float(most_served(BATCHES, times, np.array([4.0 - times]))) == pytest.approx(10.0)
    assert float(most_served(BATCHES, times, np.array([2.0 - times]))) == 0.0
    idle = float(most_served(BATCHES, times, np.array([2.05 - times])))
    assert idle == pytest.approx(1.0 / 2.05)


def test_nothing_is_said_beyond_the_largest_batch() -> None:
    times = 2.0 + 0.05 * BATCHES
    most = 128.0 / times[-1]
    assert float(requests_in_flight(BATCHES, times, most * 0.9999)) < 128.0
    assert np.isnan(requests_in_flight(BATCHES, times, most * 1.0001))
    assert np.isnan(between(BATCHES, times, np.array(np.nan)))


def test_below_the_smallest_batch_its_time_stands() -> None:
    batches, times = np.array([4.0, 8.0]), np.array([3.0, 5.0])
    assert float(requests_in_flight(batches, times, 0.5)) == pytest.approx(1.5)
    assert float(between(batches, times, np.array(1.5))) == 3.0
    alone = np.array([4.0]), np.array([3.0])
    assert float(requests_in_flight(*alone, 0.5)) == pytest.approx(1.5)
    assert float(between(*alone, np.array(1.5))) == 3.0
    assert np.isnan(requests_in_flight(*alone, 2.0))


def test_many_worlds_at_once_are_each_their_own() -> None:
    worlds = np.random.default_rng(5).uniform(0.5, 9.0, (50, 3, 4))
    slack = 6.0 - worlds[None] * 0.9
    number, most = requests_in_flight(BATCHES, worlds, 30.0), most_served(BATCHES, worlds, slack)
    reached = between(BATCHES, worlds, number)
    for place in np.ndindex(50, 3):
        one = worlds[place]
        alone = requests_in_flight(BATCHES, one, 30.0)
        np.testing.assert_array_equal(number[place], alone)
        np.testing.assert_array_equal(reached[place], between(BATCHES, one, alone))
        assert most[place] == most_served(BATCHES, one, slack[(0, *place)][None])
    assert np.isnan(number).any() and (number < 128).any()


TOKENS = 200.0


def smartspec_seconds(length: int) -> np.ndarray:
    """Of a request of 200 tokens, by batch size, drafting so many tokens each round."""
    law = load_formulas("goodput")
    rates = [law.value("goodput", batch=n, length=length, **GOODPUT) for n in BATCHES.astype(int)]
    return BATCHES * TOKENS / np.array(rates, dtype=np.float64)


@pytest.mark.parametrize(
    ("batch", "best", "rate"),
    [(1, 4, 168.594), (8, 3, 1080.697), (32, 2, 2710.178), (128, 1, 4787.539)],
)
def test_smartspec_drafts_less_the_more_arrive(batch: int, best: int, rate: float) -> None:
    """SmartSpec's example (arXiv 2406.14066): best length 4, 3, 2, 1 at batch 1, 8, 32, 128.

    A load of just what the best length gives at a batch keeps that many in flight; every other
    length has more in flight, or does not bear it.
    """
    load = rate / TOKENS * (1 - 1e-6)
    numbers = [float(requests_in_flight(BATCHES, smartspec_seconds(k), load)) for k in range(8)]
    assert numbers[best] == pytest.approx(batch, rel=2e-4)
    for length, number in enumerate(numbers):
        assert length == best or np.isnan(number) or number > numbers[best]


def test_smartspec_three_tokens_are_a_slowdown_at_batch_128() -> None:
    """What plain decoding bears at batch 128, 4625.828 tokens/s, three drafted tokens do not."""
    most = [float(most_served(BATCHES, smartspec_seconds(k), NO_LIMIT)) * TOKENS for k in (0, 1, 3)]
    assert most == pytest.approx([4625.828, 4787.539, 4002.089], abs=5e-4)
    load = 4625.8 / TOKENS
    assert float(requests_in_flight(BATCHES, smartspec_seconds(0), load)) == pytest.approx(
        128, rel=1e-4
    )
    assert np.isnan(requests_in_flight(BATCHES, smartspec_seconds(3), load))
    light = 100.0 / TOKENS
    few = [float(requests_in_flight(BATCHES, smartspec_seconds(k), light)) for k in (0, 3)]
    assert few[1] < few[0]


def simulate(
    seconds: Callable[[int], float], load: float, requests: int, seed: int
) -> tuple[float, float]:
    """Mean requests in flight and mean time of a request, of a server that shares itself evenly.

    Requests arrive by chance (Poisson). While n are in flight each gets 1 / seconds(n) of its work
    done per second; the first fifth of the arrivals warms the server up.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / load, requests))
    begin, end = arrivals[requests // 5], arrivals[-1]
    now = done = area = 0.0
    running: list[tuple[float, float]] = []  # work that must be done by then, arrival
    times: list[float] = []
    place = 0
    while place < requests:
        count = len(running)
        leaves = np.inf
        if running:
            leaves = now + (running[0][0] - done) * seconds(count)
        after = min(arrivals[place], leaves)
        area += count * max(0.0, min(after, end) - max(now, begin))
        done += (after - now) / seconds(count) if count else 0.0
        now = after
        if leaves < arrivals[place]:
            _, arrived = heapq.heappop(running)
            if arrived >= begin:
                times.append(now - arrived)
        else:
            heapq.heappush(running, (done + 1.0, now))
            place += 1
    return float(area / (end - begin)), float(np.mean(times))


def affine(idle: float, slope: float) -> tuple[np.ndarray, Callable[[int], float]]:
    return idle + slope * np.array([1.0, 8.0, 32.0, 128.0, 512.0]), lambda n: idle + slope * n


SIMULATED = np.array([1.0, 8.0, 32.0, 128.0, 512.0])


@pytest.mark.parametrize("load", [5.0, 12.0, 20.0])
def test_a_simulated_server_has_about_as_many_in_flight(load: float) -> None:
    """Chance only adds: to first order slope / idle of the number in flight (here 1 %)."""
    times, seconds = affine(2.0, 0.02)
    number = float(requests_in_flight(SIMULATED, times, load))
    seen, latency = simulate(seconds, load, 30_000, seed=3)
    assert seen == pytest.approx(number, rel=0.06)
    assert latency == pytest.approx(number / load, rel=0.06)


def test_a_simulated_server_prefers_the_same_plan_at_each_load() -> None:
    """Quick alone against slow to fill: the law changes sides at 1 / 0.07 = 14.3 per second."""
    (quick, quick_seconds), (steady, steady_seconds) = affine(1.0, 0.04), affine(2.0, 0.01)
    for load, quick_wins in ((5.0, True), (10.0, True), (19.0, False), (22.0, False)):
        by_law = [float(requests_in_flight(SIMULATED, times, load)) for times in (quick, steady)]
        seen = [simulate(s, load, 20_000, seed=7)[1] for s in (quick_seconds, steady_seconds)]
        assert (by_law[0] < by_law[1]) == (seen[0] < seen[1]) == quick_wins


def test_a_simulated_server_does_not_bear_what_the_law_does_not() -> None:
    """Above 1 / slope = 25 per second the number in flight grows for as long as one looks."""
    times, seconds = affine(1.0, 0.04)
    assert np.isnan(requests_in_flight(SIMULATED, times, 26.0))
    short, long = (simulate(seconds, 26.0, count, seed=1)[0] for count in (2_000, 20_000))
    assert long > 3.0 * short
