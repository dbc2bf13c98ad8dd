"""How much faster than the plan that tuning ends with is the best plan of all?

    python benchmarks/tune_quality.py --work DIR [--minutes 10] [--seconds 60] [--json]

For each task, temperature and batch size on the reference pair, `specplan tune` has its minutes of
runs. Then its plan and all candidates whose price is within 25 % of the best price run against each
other as in benchmarks/regret.py: exhaustively, until the slower ones drop out beyond doubt, and the
leader alone against the tuned plan in the end. They run on the prompts that tuning saw, which asks
how well it searched; `--split bench` takes prompts that nothing was measured on before. Each load
is stored when it is done, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference_problem import dealt_problem
from regret import OUTPUT_TOKENS, field_of, line, one_load, tell

from specplan import api
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.workbench import BENCH, PROFILE, Workbench
from specplan.planner import Candidate, load_problem, plan_key, search
from specplan.tuning import tune


def tuned_load(
    work: Path,
    task: str,
    temperature: float,
    batch: int,
    *,
    minutes: float,
    seconds: float,
    split: str,
    output_tokens: int,
    seed: int,
) -> dict[str, Any]:
    """Tune one load, and measure the regret of what comes of it."""
    described = dealt_problem(
        work, task, seed, batches=(batch,), output_tokens=output_tokens, temperature=temperature
    )
    path = work / f"tune-{task}-{temperature}-{batch}.json"
    write_json_atomic(path, described)
    problem = load_problem(path)
    done = tune(problem, minutes=minutes, progress=tell)
    found = search(api.gather(problem, tell, tuned=False))
    _, near = field_of(found, 0)
    chosen, near = _with(done.result.search.chosen, near)
    bench = Workbench(problem)
    draws = random.Random(f"{seed} {task} {temperature} {batch} tuned")
    row = one_load(bench, chosen, near, bench.prompts(split), batch, seconds, draws)
    return row | {
        "minutes": done.minutes,
        "trials": done.trials,
        "decided": done.decided,
        "priced_best": f"{found.chosen.method} {found.chosen.words}".strip(),
    }


def _with(chosen: Candidate, near: Sequence[Candidate]) -> tuple[Candidate, list[Candidate]]:
    """The tuned plan among the others, once."""
    assert chosen.plan is not None
    key = plan_key(chosen.plan)
    others = [c for c in near if c.plan is not None and plan_key(c.plan) != key]
    return chosen, [chosen, *others]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All loads, those that an earlier run stored left as they are."""
    work = options.work.resolve()
    path = work / f"tune_quality-{options.split}.json"
    rows: list[dict[str, Any]] = read_json(path, "results") if path.is_file() else []
    known = {(row["task"], row["temperature"], row["batch"]) for row in rows}
    for temperature in options.temperatures:
        for task in options.tasks:
            for batch in options.batches:
                if (task, temperature, batch) in known:
                    continue
                row = tuned_load(
                    work,
                    task,
                    temperature,
                    batch,
                    minutes=options.minutes,
                    seconds=options.seconds,
                    split=options.split,
                    output_tokens=options.output_tokens,
                    seed=options.seed,
                )
                rows.append({"task": task, "temperature": temperature, **row})
                write_json_atomic(path, rows)
                print(line(rows[-1]), file=sys.stderr)
    return rows


def main() -> None:
    """Measure what is not measured yet, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="of tuning, per load")
    parser.add_argument("--seconds", type=float, default=60.0, help="per contest; half per duel")
    parser.add_argument("--tasks", nargs="+", default=["code", "prose"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--split", choices=(PROFILE, BENCH), default=PROFILE)
    parser.add_argument("--output-tokens", type=int, default=OUTPUT_TOKENS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = measure(options)
    worst = max(row["regret"] for row in rows)
    if options.json:
        print(json.dumps({"loads": rows, "worst_regret": worst}))
        return
    for row in rows:
        print(f"{line(row)} | {row['minutes']:.1f} min, {row['trials']} runs")
    print(f"worst {worst:.1%}")


if __name__ == "__main__":
    main()
