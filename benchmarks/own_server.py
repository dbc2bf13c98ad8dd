"""Our own server under load, measured beside predicted, on the reference models.

A plan's steps are timed with 1, 2, 4 and 8 requests that are always there, before and after every
load; from the mean of both a simulated server predicts what the requests of the load meet. Times
are of the processor, with one thread of torch, so that waiting costs nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference_problem import dealt_problem

from specplan.cost_models.serving.mean_values import most_within
from specplan.cost_models.serving.quantiles import LoadTimes
from specplan.cost_models.serving.server import Server, StepTimes, Traffic
from specplan.ir.plan import Plan
from specplan.measure.bench.arrivals import Planned, at_rate
from specplan.measure.bench.loaded import CpuTimer, arrivals_of, measured_steps, predict, run_load
from specplan.measure.device.probes import chain_plan, plain_plan
from specplan.measure.workbench import BENCH, Workbench
from specplan.passes.pipeline import run_passes
from specplan.problems import as_problem

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
LOADS = ((96, 32), (160, 16))
BATCHES = (1, 2, 4, 8)


def bench_of(work: Path, prompt: int, output: int) -> Workbench:
    """The reference pair with prompts and outputs of these lengths."""
    problem = dealt_problem(work, "code", 1, batches=BATCHES, output_tokens=output)
    problem["workload"]["prompt_tokens"] = prompt
    return Workbench(as_problem(problem))


def plans() -> dict[str, Plan]:
    """No speculation, and a chain of the draft model."""
    return {
        "plain": run_passes(plain_plan(greedy=True)),
        "chain": run_passes(chain_plan(3, greedy=True)),
    }


def rows(requests: int, names: tuple[str, ...] = ("plain", "chain")) -> Iterator[dict[str, Any]]:
    """One row per load, plan and rate."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="specplan-") as folder:
        for prompt, output in LOADS:
            bench = bench_of(Path(folder), prompt, output)
            for name, plan in plans().items():
                if name in names:
                    named = {"load": f"{prompt}+{output}", "plan": name}
                    for row in of_plan(bench, plan, requests):
                        print({**named, **row}, file=sys.stderr, flush=True)
                        yield {**named, **row}


def of_plan(bench: Workbench, plan: Plan, requests: int) -> Iterator[dict[str, Any]]:
    """One row per rate."""
    server, prompts = Server("first", BATCHES[-1]), bench.prompts(BENCH)
    length = float(np.mean([len(one.tokens) for one in prompts]))
    executable = bench.compile(plan)
    wanted = arrivals_of(bench, [Planned(0.0)] * 3 * BATCHES[-1], prompts)
    before = measured_steps(executable, wanted, BATCHES, CpuTimer)
    traffic = Traffic(1.0, length, float(bench.output_tokens))
    most = float(most_within(server, before, traffic, lambda loads: loads.borne))
    for share in SHARES:
        arrivals = arrivals_of(bench, at_rate(most * share, requests, seed=3), prompts)
        loaded = run_load(executable, arrivals, server, timer=CpuTimer())
        after = measured_steps(executable, wanted, BATCHES, CpuTimer)
        predicted = predict(arrivals, server, mean_of(before, after), length)
        before = after
        yield {"rate": round(most * share, 3), "share_of_capacity": share,
               **errors(loaded.measured, predicted)}  # fmt: skip


def mean_of(one: StepTimes, other: StepTimes) -> StepTimes:
    """The mean of two measurements of the same steps."""
    names = ("step", "tokens", "prompt", "prefill")
    means = {name: (getattr(one, name) + getattr(other, name)) / 2.0 for name in names}
    return replace(one, **means)


def errors(measured: LoadTimes, predicted: LoadTimes) -> dict[str, float]:
    """Predicted over measured, less 1."""
    return {
        "ttft_p50_error": predicted.ttft.p50 / measured.ttft.p50 - 1.0,
        "ttft_p90_error": predicted.ttft.p90 / measured.ttft.p90 - 1.0,
        "tpot_error": predicted.tpot.mean / measured.tpot.mean - 1.0,
        "request_p50_error": predicted.request.p50 / measured.request.p50 - 1.0,
        "throughput_error": predicted.throughput / measured.throughput - 1.0,
    }
