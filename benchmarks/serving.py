"""A loaded server: mean values, simulation, our own server, and engines, held against each other.

    python benchmarks/serving.py [--only simulated,own_server,engines] [--requests N] [--json]
    python benchmarks/serving.py --rows FILE [--configs DIR] [--json]

`simulated`: how well do the mean values agree with the server simulated step by step? Servers,
lengths and steps form a grid; each is loaded with shares of the most that it bears. Errors are
medians and 90th percentiles over the grid, of mean TTFT, mean TPOT and throughput.
`same_choice` is the share of random problems, of two plans whose simulated request times differ by
3 to 20 %, in which the mean values prefer the same plan.

`own_server`: see `own_server.py`. `--rows` scores predictions of engines on measured rows instead;
see `serving_engines.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import serving_engines

from specplan.cost_models.serving.mean_values import most_within, under_load
from specplan.cost_models.serving.server import PrefillOrder, Server, StepTimes, Traffic
from specplan.cost_models.serving.simulation import Served, simulate

BATCHES = np.array([1.0, 2, 4, 8, 16, 32, 64])
SHARES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
PER_TOKEN = 2e-5
Case = tuple[Server, StepTimes, tuple[int, int]]


def steps(fixed: float, each: float, tokens: float, prompt: int) -> StepTimes:
    """Steps of `fixed + each n` seconds, and prompts of 20 microseconds a token."""
    return StepTimes(
        BATCHES,
        fixed + each * BATCHES,
        np.full(len(BATCHES), tokens),
        prompt=np.array(PER_TOKEN * prompt),
        prefill=np.array(fixed / 2.0),
    )


def grid() -> Iterator[Case]:
    """Servers with plans and lengths."""
    orders: tuple[PrefillOrder, ...] = ("first", "chunked", "elsewhere")
    lengths = ((128, 128), (1024, 512), (4096, 256))
    plans = ((0.006, 5e-5, 1.0), (0.006, 5e-5, 2.8), (0.01, 3e-4, 1.0), (0.01, 3e-4, 2.8))
    for order, chunk, length, plan in itertools.product(orders, (512, 8192), lengths, plans):
        yield Server(order, 64, chunk), steps(*plan, length[0]), length


def most_borne(server: Server, times: StepTimes, lengths: tuple[int, int]) -> float:
    """The rate that is just borne, requests per second."""
    borne = most_within(server, times, Traffic(1.0, *lengths), lambda loads: loads.borne)
    return float(borne)


def errors(case: Case, requests: int, seed: int) -> Iterator[tuple[float, dict[str, float]]]:
    """Relative errors of the mean values at every share of the most.

    Every case has arrivals of its own: the same ones err alike in all cases.
    """
    server, times, lengths = case
    most = most_borne(server, times, lengths)
    for share in SHARES:
        traffic = Traffic(most * share, *lengths)
        loads = under_load(server, times, traffic)
        # Near its most a server forgets slowly: the relaxation time grows with 1 / (1 - share)^2.
        count = int(requests * (4 if share > 0.85 else 1))
        served = simulate(server, times, traffic, requests=count, seed=seed)
        yield (
            share,
            {
                "ttft": abs(float(loads.ttft) / served.ttft.mean() - 1.0),
                "tpot": abs(float(loads.tpot) / served.tpot.mean() - 1.0),
                "throughput": abs(float(traffic.rate) / served.throughput - 1.0),
            },
        )


def same_choice(problems: int, requests: int) -> tuple[float, int]:
    """Share of problems with the same choice, and how many had plans that differ enough."""
    rng = np.random.default_rng(7)
    same = count = 0
    while count < problems:
        order = str(rng.choice(["first", "chunked"]))
        lengths = (int(rng.integers(64, 4096)), int(rng.integers(64, 512)))
        server = Server(order, 64, int(rng.choice([512, 2048, 8192])))  # type: ignore[arg-type]
        fixed, each = rng.uniform(0.004, 0.02), rng.uniform(2e-5, 4e-4)
        tokens, slower = rng.uniform(1.5, 3.5), rng.uniform(1.2, 3.0)
        plans = (
            steps(fixed, each, 1.0, lengths[0]),
            steps(fixed * rng.uniform(1.1, 1.6), each * slower, tokens, lengths[0]),
        )
        most = min(most_borne(server, plan, lengths) for plan in plans)
        traffic = Traffic(most * rng.uniform(0.2, 0.9), *lengths)
        quick = [float(under_load(server, plan, traffic).request) for plan in plans]
        if not 1.01 < max(quick) / min(quick) < 1.25:
            continue
        served = [_mean(simulate(server, plan, traffic, requests=requests)) for plan in plans]
        if not 1.03 < max(served) / min(served) < 1.2:
            continue
        count += 1
        same += (quick[0] < quick[1]) == (served[0] < served[1])
    return same / count, count


def _mean(served: Served) -> float:
    return float(served.request.mean())


def simulated(requests: int, problems: int) -> dict[str, float]:
    """Errors of the mean values, and the share of equal choices."""
    pairs = [pair for seed, case in enumerate(grid()) for pair in errors(case, requests, seed)]
    summary: dict[str, float] = {}
    for name, low, high in (("error_to_0.8", 0.0, 0.8), ("error_to_0.95", 0.8, 0.95)):
        of_range = [error for share, error in pairs if low < share <= high]
        for measure in ("ttft", "tpot", "throughput"):
            values = [error[measure] for error in of_range]
            summary[f"{name}_{measure}_median"] = float(np.median(values))
            summary[f"{name}_{measure}_p90"] = float(np.quantile(values, 0.9))
        summary[name] = max(summary[f"{name}_{m}_median"] for m in ("ttft", "tpot", "throughput"))
    summary["same_choice"], _ = same_choice(problems, requests // 2)
    return summary


def own_server(arriving: int) -> list[dict[str, Any]]:
    """Rows of our own server."""
    from own_server import rows

    return list(rows(arriving))


def engines() -> list[dict[str, Any]]:
    """Rows of engines: `{"engine", "metric", "median_error", "count"}`; none without `--rows`."""
    return []


PARTS = ("simulated", "own_server", "engines")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Predictions of a loaded server.")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, joined by commas")
    parser.add_argument("--requests", type=int, default=4000, help="that arrive in a simulation")
    parser.add_argument("--arriving", type=int, default=80, help="that arrive at our own server")
    parser.add_argument("--problems", type=int, default=200, help="of two plans each")
    parser.add_argument("--rows", type=Path, help="score engines on the rows of this file")
    parser.add_argument("--configs", type=Path, help="folder of <name>/config.json, for --rows")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.rows:
        return serving_engines.show(options.rows, options.configs, as_json=options.json)
    only = options.only.split(",")
    if unknown := [name for name in only if name not in PARTS]:
        parser.error(f"--only: {', '.join(unknown)} is none of {', '.join(PARTS)}")
    made: dict[str, Callable[[], Any]] = {
        "simulated": lambda: simulated(options.requests, options.problems),
        "own_server": lambda: own_server(options.arriving),
        "engines": engines,
    }
    empty: dict[str, Any] = {"simulated": {}, "own_server": [], "engines": []}
    answer = {name: made[name]() if name in only else nothing for name, nothing in empty.items()}
    if options.json:
        print(json.dumps(answer))
        return 0
    for key, value in answer["simulated"].items():
        print(f"{key:32} {value:.3f}")
    for row in (*answer["own_server"], *answer["engines"]):
        print(
            "  ".join(f"{k} {v:+.3f}" if isinstance(v, float) else str(v) for k, v in row.items())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
