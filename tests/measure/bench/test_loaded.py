"""Requests that arrive at our own server: when, what they meet, and what was predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.serving.quantiles import Quantiles  # noqa: E402
from specplan.cost_models.serving.server import Server, StepTimes  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.measure.bench.arrivals import Planned, at_rate, from_trace  # noqa: E402
from specplan.measure.bench.loaded import (  # noqa: E402
    CpuTimer,
    arrivals_of,
    measured_steps,
    predict,
    run_load,
    served_plan,
)
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.measure.workbench import BENCH, Workbench  # noqa: E402
from specplan.planner import load_problem  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    path = write_problem(tmp_path_factory.mktemp("problem"), prompts=6, output_tokens=12)
    return Workbench(load_problem(path))


def test_gaps_have_the_rate_and_the_burstiness() -> None:
    for burstiness in (0.25, 1.0, 4.0):
        times = np.array([one.seconds for one in at_rate(5.0, 20_000, burstiness, seed=2)])
        gaps = np.diff(times)
        assert gaps.mean() == pytest.approx(0.2, rel=0.05)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)
    assert np.diff([one.seconds for one in at_rate(4.0, 9, 0.0)]) == pytest.approx(0.25)


def test_traces_of_three_forms(tmp_path: Path) -> None:
    ours, azure, burst = (tmp_path / name for name in ("ours", "azure.csv", "burst.csv"))
    ours.write_text(
        "".join(json.dumps(row) + "\n" for row in (
            {"seconds": 3.5, "output_tokens": 7}, {"seconds": 2, "prompt_tokens": 5},
        ))
    )  # fmt: skip
    assert from_trace(ours) == [Planned(0.0, 5, None), Planned(1.5, None, 7)]
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = from_trace(azure)
    assert (first.prompt_tokens, second.output_tokens) == (374, 109)
    assert second.seconds == pytest.approx(4.314579)
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n"
    )
    assert from_trace(burst, 1) == [Planned(0.0, 472, 18)]
    for text, message in (
        ('{}\n{"a": 1}\n', "no time"),
        ('{"seconds": "x"}', "request 1"),
        ("a\n", "no requests"),
    ):
        ours.write_text(text)
        with pytest.raises(UsageError, match=message):
            from_trace(ours)


def test_replayed_requests_take_what_can_be_computed_by_hand() -> None:
    """One at a time: a prompt of 10 tokens takes 0.1 s and a step 1 s; two tokens a step."""
    steps = StepTimes(
        np.ones(1), np.ones(1), np.full(1, 2.0), np.array(0.1), np.array(0.0), first_steps=1
    )
    server = Server("first", running=1, step_tokens=100)
    bare = [Planned(0.0), Planned(0.5)]

    class Asked:
        prompt_tokens, max_new_tokens = (1,) * 11, 4

    from specplan.runtime.service import Arrival

    times = predict([Arrival(one.seconds, Asked()) for one in bare], server, steps, 10.0)  # type: ignore[arg-type]
    assert times.ttft.p50 == pytest.approx((1.1 + 2.7) / 2)
    assert times.request.mean == pytest.approx((2.1 + 3.7) / 2)
    assert times.throughput == pytest.approx(2 / 4.2)
    assert Quantiles.of(range(101)) == Quantiles(50.0, 50.0, 90.0, 99.0)


def test_a_load_is_served_and_predicted(bench: Workbench) -> None:
    """With times of its own steps; wide bounds, since neighbours take of the machine."""
    server = Server("first", running=4)
    prompts = bench.prompts(BENCH)
    executable = bench.compile(plain_plan(greedy=True))
    many = arrivals_of(bench, [Planned(0.0)] * 8, prompts)
    steps = measured_steps(executable, many, (1, 2, 4), CpuTimer)
    assert (steps.tokens == 1.0).all() and (steps.step > 0.0).all() and steps.first_steps == 1
    alone = float(steps.prompt + steps.prefill + steps.step[0] * 12)
    planned = at_rate(1.0 / alone, 24, seed=1)
    arrivals = arrivals_of(bench, planned, prompts)
    loaded = run_load(executable, arrivals, server, steps, 8.0, CpuTimer())
    assert loaded.requests == 24 and loaded.predicted is not None
    assert loaded.measured.tpot.mean == pytest.approx(loaded.predicted.tpot.mean, rel=1.0)
    assert loaded.measured.ttft.p50 <= loaded.measured.ttft.p90 <= loaded.measured.ttft.p99
    assert loaded.measured.request.p50 > loaded.measured.ttft.p50 > 0.0
    chunked = replace(server, prefill="chunked", step_tokens=4)
    riding = bench.compile(served_plan(plain_plan(greedy=True), chunked))
    again = run_load(riding, arrivals, chunked, timer=CpuTimer())
    outputs = [[one.completion.tokens for one in run.service.served] for run in (loaded, again)]
    assert outputs[0] == outputs[1] and again.predicted is None
