"""The objective goodput: what is chosen, against the same server simulated step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.serving.server import StepTimes, Traffic
from specplan.cost_models.serving.simulation import Served, simulate
from specplan.ir.errors import InfeasibleError
from specplan.planner.answer.not_tried import not_tried_lines
from specplan.planner.explain.data import explain
from specplan.planner.explain.load import break_even_load
from specplan.planner.explain.words import explain_words
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import is_gain, score, speedup
from specplan.planner.search.objectives import Load
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.uncertainty import speed_over
from specplan.planner.serving.capacity import serve, times_of
from tests.planner.example_facts import example_facts, workload

SIZES = [1, 4, 16, 64]
RESULTS: dict[str, SearchResult] = {}


def searched(folder: Path, rate: float, sizes: list[int] = SIZES, **changes: Any) -> SearchResult:
    """The search at a load; what has been searched once is kept."""
    key = repr((rate, sizes, changes))
    if key not in RESULTS:
        served = workload(batch_sizes=sizes, request_rate=rate)
        settings = {"methods": ["draft_model"], "workload": served} | changes
        RESULTS[key] = search(example_facts(folder, objective="goodput", **settings))
    return RESULTS[key]


def load_of(result: SearchResult) -> Load:
    load = result.facts.objective
    assert isinstance(load, Load)
    return load


def simulated(estimates: tuple[Estimate, ...], load: Load, rate: float | None = None) -> Served:
    """The same server simulated step by step, from the estimates by batch size."""
    first, last = estimates[0], estimates[-1]
    prompt = (last.prefill.median - first.prefill.median) / (last.batch - first.batch)
    times = StepTimes(
        np.array([float(e.batch) for e in estimates]),
        np.array([e.seconds_per_round.median for e in estimates]),
        np.array([e.tokens_per_round.mean for e in estimates]),
        prompt=np.array(prompt),
        prefill=np.array(first.prefill.median - prompt * first.batch),
        first_steps=1,
    )
    traffic = Traffic(rate or load.request_rate, float(first.prompt_tokens), first.output_tokens)
    return simulate(load.server, times, traffic, requests=3000)


def admissible(result: SearchResult) -> list[Candidate]:
    return [c for c in result.candidates if c.admissible]


@pytest.mark.parametrize("rate", [0.5, 20.0, 150.0, 400.0, 5000.0])
def test_most_goodput_first_then_the_least_seconds(tmp_path: Path, rate: float) -> None:
    result = searched(tmp_path, rate)
    load = load_of(result)
    served: dict[int, tuple[float, float]] = {}
    for candidate in admissible(result):
        at_load = result.served_by(candidate)
        assert at_load is not None
        value = score(candidate, load)
        served[id(candidate)] = at_load.goodput.mean, value if at_load.whole else np.inf
        if candidate not in (result.chosen, result.plain):
            continue
        if at_load.whole:
            really = simulated(candidate.estimates, load)
            assert value == pytest.approx(really.request.mean(), rel=0.15)
        else:  # a server that is never idle serves what it can
            really = simulated(candidate.estimates, load, 1.2 * at_load.goodput.mean)
            assert at_load.goodput.mean == pytest.approx(really.throughput, rel=0.12)
    sure = [
        c
        for c in admissible(result)
        if c is result.plain or is_gain(speedup(c, result.plain, load))
    ]
    goodput, seconds = served[id(result.chosen)]
    assert goodput == pytest.approx(max(served[id(c)][0] for c in sure), rel=0.012)
    if np.isfinite(seconds):
        assert seconds <= 1.012 * min(served[id(c)][1] for c in sure)
    else:
        assert not any(np.isfinite(served[id(c)][1]) for c in sure)


def test_whoever_serves_all_comes_before_whoever_is_quicker_but_does_not(tmp_path: Path) -> None:
    result = searched(tmp_path, 300.0)
    load = load_of(result)
    priced = [(result.served_by(c), score(c, load)) for c in admissible(result)]
    whole = [value for served, value in priced if served is not None and served.whole]
    rest = [value for served, value in priced if served is not None and not served.whole]
    assert whole and rest and max(whole) < min(rest)


def judged(candidate: Candidate, cell: int) -> int:
    """Tokens that the target sees in a round."""
    parts = candidate.estimates[cell].breakdown
    return max(part.width for part in parts if part.model == "target")


def test_the_more_arrive_the_less_is_drafted(tmp_path: Path) -> None:
    """At each load the round that runs where the requests in flight are."""
    widths, numbers = [], []
    for rate in (0.5, 150.0, 400.0, 5000.0):
        result = searched(tmp_path, rate)
        assert result.at_load is not None
        (at,) = result.at_load.mean.lengths
        number = SIZES[-1] if np.isnan(at.in_flight) else float(at.in_flight)
        widths.append(judged(result.chosen, int(np.searchsorted(SIZES, number))))
        numbers.append(number)
    assert numbers == sorted(numbers) and widths == sorted(widths, reverse=True)
    assert widths[0] > widths[-1]


def test_an_idle_server_is_the_smallest_batch(tmp_path: Path) -> None:
    result = searched(tmp_path, 1e-3)
    alone = [c.estimates[0].request_seconds.median for c in admissible(result) if not c.by_cell]
    assert score(result.chosen, load_of(result)) <= 1.01 * min(alone)
    assert score(result.plain, load_of(result)) == pytest.approx(
        result.plain.estimates[0].request_seconds.median, rel=1e-4
    )


def test_more_load_never_serves_less_and_never_sooner(tmp_path: Path) -> None:
    result = searched(tmp_path, 1.0)
    assert result.plain.estimate is not None
    before: dict[str, float] = {"goodput": 0.0, "seconds": 0.0}
    for rate in np.geomspace(0.1, 1000.0, 25):
        load = Load(float(rate), load_of(result).memory)
        assert result.plain.estimate is not None
        at_load = serve(load, result.plain.estimate, times_of(result.plain.estimate))
        value, goodput = score(result.plain, load), float(at_load.goodput)
        assert goodput >= before["goodput"] * (1 - 1e-3)
        if at_load.whole:
            assert value >= before["seconds"] * (1 - 1e-9)
            before["seconds"] = value
        before["goodput"] = goodput


def test_a_limit_lowers_goodput_to_where_it_is_kept(tmp_path: Path) -> None:
    free = searched(tmp_path, 200.0)
    assert free.at_load is not None and free.at_load.whole
    (at,) = free.at_load.mean.lengths
    reached = float(at.times.request)
    result = searched(tmp_path, 200.0, limits={"request_latency": 0.8 * reached})
    assert result.at_load is not None and not result.at_load.whole
    (bound,) = result.at_load.mean.lengths
    assert bound.bound == "limits"
    assert 0.0 < result.at_load.goodput.mean < 200.0
    really = simulated(result.chosen.estimates, load_of(result), result.at_load.goodput.mean)
    assert really.request.mean() == pytest.approx(0.8 * reached, rel=0.1)
    limited = searched(tmp_path, 200.0, limits={"request_latency": 1.2 * reached})
    assert limited.at_load is not None and limited.at_load.whole
    text = "\n".join(explain_words(explain(result)))
    assert "more would exceed a limit" in text


@pytest.mark.parametrize("limit", ["request_latency", "ttft", "tpot"])
@pytest.mark.parametrize("objective", ["goodput", "latency"])
def test_a_limit_that_nothing_keeps_is_named(tmp_path: Path, limit: str, objective: str) -> None:
    rate = {"request_rate": 2.0} if objective == "goodput" else {}
    changes = {"objective": objective, "workload": workload(**rate), "limits": {limit: 1e-6}}
    with pytest.raises(InfeasibleError) as caught:
        search(example_facts(tmp_path, **changes))
    assert caught.value.where == f"limits.{limit}" and "the limit is 1.00 us" in caught.value.what
    if objective == "goodput":
        assert "(batch 1)" in caught.value.what


def test_request_latency_is_prompt_and_output_of_the_slowest_cell(tmp_path: Path) -> None:
    free = search(example_facts(tmp_path))
    slowest = max(e.request_seconds.median for e in free.plain.estimates)
    tight = search(example_facts(tmp_path, limits={"request_latency": 0.999 * slowest}))
    assert str(tight.plain.refusal).startswith("limits.request_latency: time of a request is")
    assert "at batch 4, the limit is" in str(tight.plain.refusal)
    loose = search(example_facts(tmp_path, limits={"request_latency": 1.001 * slowest}))
    assert loose.plain.admissible
    for estimate in tight.chosen.estimates:
        assert estimate.request_seconds.median <= 0.999 * slowest


def test_memory_must_hold_the_batch_that_is_needed(tmp_path: Path) -> None:
    free = searched(tmp_path, 600.0)
    plain = free.plain.estimates
    limit = (plain[1].memory.total + plain[2].memory.total) / 2
    result = searched(tmp_path, 600.0, limits={"memory": limit}, methods=["autoregressive"])
    assert result.at_load is not None and not result.at_load.whole
    (at,) = result.at_load.mean.lengths
    assert at.bound == "memory" and at.batches.tolist() == [1.0, 4.0]
    really = simulated(plain[:2], load_of(result), 1.2 * result.at_load.goodput.mean)
    assert result.at_load.goodput.mean == pytest.approx(really.throughput, rel=0.12)
    text = "\n".join(explain_words(explain(result)))
    assert "batches above 4 do not fit in memory" in text


def test_a_load_that_is_not_borne_is_reported_and_not_extrapolated(tmp_path: Path) -> None:
    result = searched(tmp_path, 1e6)
    assert result.at_load is not None and not result.at_load.whole
    data = explain(result)
    (at,) = data["chosen"]["at_load"]["by_prompt"]
    assert at["in_flight"] is None and at["batch"] is None and at["largest_batch"] == 64
    really = simulated(result.chosen.estimates, load_of(result), 1.2 * result.at_load.goodput.mean)
    assert result.at_load.goodput.mean == pytest.approx(really.throughput, rel=0.12)
    text = "\n".join(explain_words(data))
    assert "at batch 64, the largest given; beyond it nothing is known" in text


def test_the_interval_is_that_of_both_ends(tmp_path: Path) -> None:
    result = searched(tmp_path, 60.0)
    load = load_of(result)
    for candidate in (result.chosen, result.plain):
        served = result.served_by(candidate)
        assert served is not None
        goodput = served.goodput
        assert 0 < goodput.low <= goodput.mean <= goodput.high <= load.request_rate
        (mean,), (fast,) = served.mean.lengths, served.fast.lengths
        assert fast.in_flight <= mean.in_flight


def test_prompt_lengths_are_served_apart_and_averaged(tmp_path: Path) -> None:
    both = {"prompt_lengths": [40, 400]}
    lengths = {"batch_sizes": SIZES, "output_tokens": 32, "request_rate": 60.0, **both}
    result = search(example_facts(tmp_path, objective="goodput", workload=lengths))
    load = load_of(result)
    assert result.at_load is not None
    at = result.at_load.mean.lengths
    assert [one.prompt_tokens for one in at] == [40, 400]
    each = [float(one.goodput) for one in at]
    assert result.at_load.goodput.mean == pytest.approx(np.mean(each))
    for one in at:
        cells = tuple(e for e in result.chosen.estimates if e.prompt_tokens == one.prompt_tokens)
        really = simulated(cells, load)
        if one.whole:
            assert float(one.times.request) == pytest.approx(really.request.mean(), rel=0.1)
    assert float(at[0].in_flight) < float(at[1].in_flight)


def test_a_schedule_is_the_best_round_of_every_batch(tmp_path: Path) -> None:
    result = searched(tmp_path, 150.0, sizes=[1, 8, 64, 256])
    schedules = [c for c in result.candidates if c.by_cell]
    assert len(schedules) == 1
    (schedule,) = schedules
    load = load_of(result)
    singles = [c for c in admissible(result) if not c.by_cell]
    assert score(schedule, load) <= 1.05 * min(score(c, load) for c in singles)
    for index, part in enumerate(schedule.by_cell):
        best = min(c.estimates[index].decode_seconds.median for c in singles)
        assert part.estimates[index].decode_seconds.median <= 1.1 * best


def test_the_schedule_outlives_batches_at_which_nothing_keeps_the_limits(tmp_path: Path) -> None:
    """They tell the times below them; their own limits are judged at the requests in flight."""
    sizes = [1, 8, 64, 256]
    free = searched(tmp_path, 5.0, sizes=sizes)
    least = [min(c.estimates[i].ttft.median for c in admissible(free)) for i in range(4)]
    result = searched(tmp_path, 5.0, sizes=sizes, limits={"ttft": (least[2] + least[3]) / 2})
    assert any(c.by_cell and c.admissible for c in result.candidates)
    assert result.at_load is not None and result.at_load.whole


def test_confidence_compares_at_the_load(tmp_path: Path) -> None:
    for rate in (150.0, 5000.0):
        result = searched(tmp_path, rate)
        sure, load = result.confidence, load_of(result)
        over_itself = speed_over(result.chosen, result.chosen, result.facts.profiles, load)
        assert (over_itself.low, over_itself.mean, over_itself.high) == (1.0, 1.0, 1.0)
        gain = speed_over(result.chosen, result.plain, result.facts.profiles, load)
        assert gain.mean == speedup(result.chosen, result.plain, load).mean > 1.0
        assert gain.low < gain.mean <= gain.high
        if rate == 5000.0:  # neither bears it: as many requests, not as few seconds
            mine, plain = result.at_load, result.served_by(result.plain)
            assert mine and plain and not mine.whole and not plain.whole
            assert gain.mean == pytest.approx(mine.goodput.mean / plain.goodput.mean)
        assert sure.probability_best + sum(p for _, p in sure.rivals) == pytest.approx(1.0)
        assert 0.0 <= sure.expected_regret < 0.5
        assert all(0.0 <= m.regret_saved < 0.5 for m in sure.measurements)


def test_the_break_even_load_is_where_the_two_are_equal(tmp_path: Path) -> None:
    """A drafter that helps one request and burdens many: plain is better from some load."""
    few = {Model("draft"): AcceptanceProfile.from_hazards([[0.45]], trials=10**6)}
    facts = example_facts(
        tmp_path,
        given=few,
        objective="goodput",
        workload=workload(batch_sizes=[1, 16, 64, 256], request_rate=1.0),
    )
    result = search(facts)
    load = load_of(result)
    chain = next(c for c in result.candidates if c.words == "chain of 6 by draft")
    point = break_even_load(load, chain, result.plain)
    assert point is not None and len(point.pays) == 1
    start, end = point.pays[0]
    assert start is None and end is not None
    for factor, better in ((0.97, True), (1.03, False)):
        at = Load(end.mean * factor, load.memory)
        assert (score(chain, at) < score(result.plain, at)) is better
    data = json.loads(json.dumps(explain(result), allow_nan=False))
    assert data["load"]["break_even"]["words"] == result.chosen.words
    text = "\n".join(explain_words(data))
    assert (
        "By load it is better than plain decoding (in seconds" in text
        and "modelled: a server that batches continuously" in text
    )


def test_report_and_explanation_carry_the_load(tmp_path: Path) -> None:
    result = searched(tmp_path, 20.0)
    report = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    for entry, candidate in zip(report["candidates"], result.candidates, strict=True):
        assert (entry["at_load"] is None) == (candidate.estimate is None)
        if entry["at_load"] is not None:
            assert entry["at_load"]["request_rate"] == 20.0
            assert entry["at_load"]["basis"].startswith("modelled")
    for rate in (20.0, 400.0, 1e6):
        data = explain(searched(tmp_path, rate))
        text = "\n".join(explain_words(data))
        assert f"At {rate:g} requests/s, modelled" in text
        lines = [line for line in text.split("\n") if line not in set(not_tried_lines(data))]
        assert all(line.endswith(".") for line in lines), lines
        assert "None" not in text and "nan" not in text and "e-0" not in text
    plain = search(example_facts(tmp_path))
    assert plain.at_load is None and explain(plain)["load"] is None
    assert all(c["at_load"] is None for c in plain.as_dict()["candidates"])
