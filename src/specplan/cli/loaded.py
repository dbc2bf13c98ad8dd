"""`specplan bench --rate`: a bundle's plan on our own server, under load."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.output import print_json, print_table
from specplan.ir.errors import RegressionError

if TYPE_CHECKING:
    from specplan.bundles.loaded import LoadedComparison
    from specplan.cost_models.serving.quantiles import LoadTimes


RateOption = Annotated[
    float | None,
    typer.Option(
        metavar="PER_SECOND",
        min=1e-6,
        help="Serve requests that arrive at this rate, in a continuous batch.",
    ),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve requests as a trace has them (JSON Lines, CSV)."),
]
RequestsOption = Annotated[
    int, typer.Option(min=2, help="Requests that arrive, with --rate or --trace.")
]
BurstinessOption = Annotated[
    float,
    typer.Option(
        min=0.0, help="With --rate: 1 is Poisson arrivals, 0 arrivals at equal intervals."
    ),
]
RunningOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --rate or --trace: maximum number of requests that run at a time."
    ),
]


def serve_bundle(
    bundle: Path,
    load: tuple[float | None, Path | None, int, float, int | None],
    prompts: Path | None,
    json: bool,
) -> None:
    """Serve requests, print what they met beside what was predicted, and judge the limits.

    Args:
        bundle: its folder.
        load: the fields of `specplan.bundles.loaded.Load`.
        prompts: instead of the problem's.
        json: print JSON.

    Raises:
        RegressionError: the chosen plan misses a limit of the problem in the median.
    """
    from specplan.bundles.loaded import Load, bench_load, missed_load_limits
    from specplan.bundles.writing import open_bundle
    from specplan.planner.problem.errors import Origin
    from specplan.planner.problem.loading import problem_form
    from specplan.progress import terminal_progress

    opened = open_bundle(bundle)
    with terminal_progress() as progress:
        result = bench_load(opened, Load(*load), prompts=prompts, progress=progress)
    if json:
        print_json(asdict(result))
    else:
        _print(result)
    limits = problem_form(opened.problem, Origin()).limits
    missed = missed_load_limits(
        result.line(result.chosen),
        {name: getattr(limits, name) for name in ("ttft", "tpot", "request_latency")},
    )
    if missed:
        raise RegressionError(
            f"{result.chosen}: {'; '.join(missed)}",
            where="specplan bench --rate",
            remedy="Lower the rate, or look at `specplan explain`.",
        )


def _print(result: LoadedComparison) -> None:
    rows = []
    for line in result.lines:
        rows.append((line.name, "measured", *_cells(line.measured)))
        if line.predicted is not None:
            rows.append(("", "predicted", *_cells(line.predicted)))
    times = ("TTFT", "TPOT", "request")
    print_table(
        ("decoding", "", *(f">{name} p50 / p90 / p99 [ms]" for name in times), ">requests/s"),
        rows,
        title=f"{result.requests} requests at {result.rate:.3g} per second, at most "
        f"{result.server.running} at a time, prompts {_order(result.server.prefill)}",
    )
    print(result.hardware)


def _order(prefill: str) -> str:
    return "in chunks along with steps" if prefill == "chunked" else "before the next step"


def _cells(times: LoadTimes) -> tuple[str, ...]:
    quantiles = (times.ttft, times.tpot, times.request)
    each = (
        " / ".join(f"{1e3 * seconds:.3g}" for seconds in (one.p50, one.p90, one.p99))
        for one in quantiles
    )
    return (*each, f"{times.throughput:.3g}")
