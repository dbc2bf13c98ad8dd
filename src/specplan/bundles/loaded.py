"""A bundle's plan under load, on our own server: measured beside predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specplan.bundles.contest import chosen_name, contestants, problem_of
from specplan.bundles.report import reading_report
from specplan.bundles.writing import open_bundle
from specplan.cost_models.intervals import Interval, Seconds
from specplan.cost_models.serving.server import Server, StepTimes, step_times
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from specplan.planner.serving.pools import server_as_stated
from specplan.progress import Progress, silent
from specplan.runtime import require_torch

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.cost_models.serving.quantiles import LoadTimes
    from specplan.ir.plan import Plan
    from specplan.measure.bench.arrivals import Planned
    from specplan.planner.problem.schema import Problem


@dataclass(frozen=True)
class LoadedLine:
    """One plan under load.

    Attributes:
        name: of the plan.
        measured: what its requests met.
        predicted: the same arrivals, replayed with the times of the bundle's report; None where
            the report has no times.
    """

    name: str
    measured: LoadTimes
    predicted: LoadTimes | None


@dataclass(frozen=True)
class LoadedComparison:
    """Plans that served the same arrivals, one after the other.

    Attributes:
        lines: no speculation and the chosen plan.
        chosen: name of the plan that the comparison is about.
        rate: requests per second that arrived.
        requests: how many.
        server: how they were batched.
        hardware: the machine.
    """

    lines: tuple[LoadedLine, ...]
    chosen: str
    rate: float
    requests: int
    server: Server
    hardware: str

    def line(self, name: str) -> LoadedLine:
        """The row of a plan."""
        return next(line for line in self.lines if line.name == name)


@dataclass(frozen=True)
class Load:
    """Requests that arrive at a rate, or as a trace has them.

    Attributes:
        rate: requests per second; one of `rate` and `trace`.
        trace: a file of arrivals; see `specplan.measure.bench.arrivals`.
        requests: how many arrive at most.
        burstiness: squared coefficient of variation of the gaps at a rate.
        running: most requests at a time; the problem's `serving.running`, or its largest batch
            size, when None.
    """

    rate: float | None = None
    trace: Path | None = None
    requests: int = 100
    burstiness: float = 1.0
    running: int | None = None

    def planned(self, seed: int) -> list[Planned]:
        """When requests arrive.

        Raises:
            UsageError: not one of rate and trace is given, or the trace cannot be read.
        """
        from specplan.measure.bench.arrivals import at_rate, from_trace

        if self.rate is not None and self.trace is None:
            return at_rate(self.rate, self.requests, self.burstiness, seed)
        if self.trace is not None and self.rate is None:
            return from_trace(self.trace, self.requests)
        raise UsageError(
            "requests arrive at a rate or as a trace has them",
            where="bench",
            remedy="Give one of --rate and --trace.",
        )


def bench_load(
    bundle: Bundle | Path | str,
    load: Load,
    *,
    prompts: Path | str | None = None,
    progress: Progress = silent,
) -> LoadedComparison:
    """Serve requests with a bundle's plan and without speculation, one after the other.

    Args:
        bundle: a bundle or its folder.
        load: the requests.
        prompts: JSON Lines of prompts instead of those of the bundle's problem.
        progress: called for every plan.

    Raises:
        UsageError: see `Load.planned`; or the bundle has no prompts.
        MissingCapabilityError: running models needs an extra, or the plan runs no such batch.
    """
    require_torch()
    from specplan.measure.bench import loaded
    from specplan.measure.machine import hardware_name
    from specplan.measure.workbench import BENCH, Workbench

    opened = open_bundle(bundle)
    opened.check_models()
    problem = problem_of(opened, prompts)
    bench, server = Workbench(problem), _server(problem, load.running)
    arrivals = loaded.arrivals_of(bench, load.planned(problem.seed), bench.prompts(BENCH))
    length = float(np.mean([len(one.request.prompt_tokens) for one in arrivals]))
    lines: list[LoadedLine] = []
    plans = {name: plan for name, (plan, _) in contestants(opened, 1).items()}
    for done, (name, plan) in enumerate(plans.items()):
        progress(f"serving: {name}", done, len(plans))
        executable = bench.compile(loaded.served_plan(plan, server))
        steps = _steps(opened, plan, server, length, loaded.first_steps(executable))
        loaded.run_load(executable, arrivals[: server.running], server)  # warms caches up
        run = loaded.run_load(executable, arrivals, server, steps, length)
        lines.append(LoadedLine(name, run.measured, run.predicted))
    progress("serving", len(plans), len(plans))
    hardware, chosen = hardware_name(bench.models["target"].device), chosen_name(opened)
    return LoadedComparison(tuple(lines), chosen, run.rate, len(arrivals), server, hardware)


def missed_load_limits(line: LoadedLine, limits: Mapping[str, float | None]) -> list[str]:
    """The limits that a plan under load exceeds in the median, in words.

    Args:
        line: of the plan.
        limits: most seconds of `ttft`, `tpot` and `request_latency`; None for no limit.
    """
    measured = {
        "ttft": line.measured.ttft.p50,
        "tpot": line.measured.tpot.p50,
        "request_latency": line.measured.request.p50,
    }
    return [
        f"limits.{name} is {limit:g} s, measured p50 {measured[name]:.4g} s"
        for name, limit in limits.items()
        if limit is not None and measured[name] > limit
    ]


def _server(problem: Problem, running: int | None) -> Server:
    server = server_as_stated(problem)
    if running is None and problem.serving.running is None:
        running = max(problem.workload.batch_sizes)
    return server if running is None else replace(server, running=running)


def _steps(
    bundle: Bundle, plan: Plan, server: Server, length: float, first_steps: int
) -> StepTimes | None:
    """What the steps of a plan take by the bundle's report, at the length of prompts nearest."""
    with reading_report(bundle):
        entries: Sequence[dict[str, Any]] = next(
            one["estimates"]
            for one in bundle.report["candidates"]
            if one.get("plan") and one.get("estimates") and parse_plan(one["plan"]) == plan
        )
        nearest = min((one["prompt_tokens"] for one in entries), key=lambda p: abs(p - length))
        rows = sorted(
            (one for one in entries if one["prompt_tokens"] == nearest),
            key=lambda one: float(one["batch"]),
        )
        batches = np.array([float(one["batch"]) for one in rows])
        step = np.array([Seconds(**one["seconds_per_round"]).median for one in rows])
        tokens = np.array([Interval(**one["tokens_per_round"]).mean for one in rows])
        prefills = np.array([Seconds(**one["prefill"]).median for one in rows])
    together = server.step_tokens / max(nearest, 1.0)
    times = step_times(batches, step, tokens, prefills, together, first_steps)
    scale = length / max(nearest, 1.0)
    return replace(times, prompt=times.prompt * scale)
