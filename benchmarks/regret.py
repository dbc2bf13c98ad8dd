"""How much faster than the chosen plan is the best plan that was measured?

    python benchmarks/regret.py --work DIR [--tune MINUTES] [--batches 1 2 4 8] [--json]

For each task, temperature and batch size on the reference pair, all candidates whose price is
within 25 % of the chosen one's are run against each other on held-out prompts. Turn by turn every
contender runs the same batch of prompts, in random order; one that is slower than the leader beyond
doubt drops out (`contests.py`), the chosen one never does. Then the leader and the chosen plan
alone run further turns, and only these count: the fastest of many noisy runs would look faster than
it is. Each workload is stored when it is done, and a run that was stopped goes on.

The plan is chosen by prices, or with `--tune` after so many minutes of `specplan tune` per task and
temperature, on the prompts that acceptance is measured on. With `--split profile` the contest is on
these prompts too, which asks how well a tuning searched rather than how well it generalises.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from contests import Contender, contest, duel
from reference_problem import dealt_problem

from specplan.gathering import gather
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.bench.bench import served_before
from specplan.measure.bench.contenders import plan_timer
from specplan.measure.workbench import BENCH, PROFILE, TokenPrompt, Workbench, groups_of
from specplan.planner import Candidate, Problem, SearchResult, load_problem
from specplan.planner.search.comparing import cell_costs
from specplan.planner.search.search import search
from specplan.tuning import tune

TASKS, TEMPERATURES, BATCHES = ("code", "prose"), (0.0, 0.8), (1, 2, 4, 8)
OUTPUT_TOKENS = 64
WITHIN = 0.25
"""Contenders are priced at most this part above the winner."""


def priced_for(searched: SearchResult, cell: int) -> Candidate:
    """The plan that a search chooses for one load alone."""
    chosen = searched.best_of_each[cell]
    assert chosen is not None, "nothing limits these problems"
    return chosen


def tuned_for(searched: SearchResult, cell: int) -> Candidate:
    """The plan that a tuning chose, or the round of its schedule for one load."""
    return searched.chosen.by_cell[cell] if searched.chosen.by_cell else searched.chosen


def field_of(searched: SearchResult, chosen: Candidate, cell: int) -> list[Candidate]:
    """All that run and are priced within reach of the plan chosen for one load."""
    objective = searched.facts.objective
    reach = (1.0 + WITHIN) * cell_costs(chosen, objective)[cell]
    single = [c for c in searched.candidates if c.priced and not c.unsupported and not c.by_cell]
    return [c for c in single if cell_costs(c, objective)[cell] <= reach]


def one_load(
    bench: Workbench,
    chosen: Candidate,
    near: Sequence[Candidate],
    prompts: Sequence[TokenPrompt],
    batch: int,
    seconds: float,
    draws: random.Random,
) -> dict[str, Any]:
    """The regret of one load: of a plan among all those near it, itself one of them."""

    def groups() -> Iterator[Sequence[TokenPrompt]]:
        while True:
            yield from groups_of(draws.sample(prompts, len(prompts)), batch)

    contenders, served = [], served_before(bench)
    for other in near:
        assert other.plan is not None
        words = f"{other.method} {other.words}".strip()
        contenders.append(Contender(words, plan_timer(bench, other.plan, served)))
        contenders[-1].run(prompts[:batch])  # allocates and warms caches
    mine = contenders[next(i for i, other in enumerate(near) if other is chosen)]
    source = groups()
    leader, turns = contest(contenders, mine, source, seconds, draws)
    result: dict[str, Any] = {"regret": 0.0, "low": 0.0, "high": 0.0, "turns": 0}
    if leader is not mine:
        result = duel(mine, leader, source, seconds / 2, draws)
    return {
        "batch": batch,
        "chosen": mine.words,
        "best": leader.words,
        "contenders": len(near),
        "contest_turns": turns,
        **result,
    }


def measure(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All loads, those that an earlier run stored left as they are."""
    path = asked.work / "regret.json"
    rows: list[dict[str, Any]] = read_json(path, "results") if path.is_file() else []
    known = {_load(row) for row in chosen_alike(asked, rows)}
    for temperature, task in product(asked.temperatures, asked.tasks):
        if all((task, temperature, batch) in known for batch in asked.batches):
            continue
        problem = write_problem(asked, task, temperature)
        if asked.tune:
            searched = tune(problem, minutes=asked.tune, progress=tell).result.search
        else:
            searched = search(gather(problem, tell, tuned=False))
        bench = Workbench(problem)
        for cell, batch in enumerate(asked.batches):
            if (task, temperature, batch) in known:
                continue
            draws = random.Random(f"{asked.seed} {task} {temperature} {batch}")
            chosen = tuned_for(searched, cell) if asked.tune else priced_for(searched, cell)
            near, prompts = field_of(searched, chosen, cell), bench.prompts(asked.split)
            row = one_load(bench, chosen, near, prompts, batch, asked.seconds, draws)
            rows.append({"task": task, "temperature": temperature, **_how(asked), **row})
            write_json_atomic(path, rows)
            print(line(rows[-1]), file=sys.stderr)
    return [row for row in chosen_alike(asked, rows) if _load(row) in _loads(asked)]


def write_problem(asked: argparse.Namespace, task: str, temperature: float) -> Problem:
    """The problem of one task and temperature at all batch sizes that are asked for."""
    described = dealt_problem(
        asked.work,
        task,
        asked.seed,
        batches=asked.batches,
        output_tokens=OUTPUT_TOKENS,
        temperature=temperature,
    )
    path: Path = asked.work / f"{task}-{temperature}.json"
    write_json_atomic(path, described)
    return load_problem(path)


def _how(asked: argparse.Namespace) -> dict[str, Any]:
    """How the plan of a row was chosen, and on which prompts it was held against others."""
    return {"tuned_minutes": asked.tune, "split": asked.split, "batches": list(asked.batches)}


def chosen_alike(asked: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stored rows whose plans were chosen as is asked for.

    Args:
        asked: `tune`, minutes of tuning, 0 for a choice by prices; `split`; and `batches`, the
            loads that one plan was chosen for.
        rows: those without a word of it are of the defaults.
    """
    default = {"tuned_minutes": 0.0, "split": BENCH, "batches": list(BATCHES)}
    how = _how(asked)
    return [row for row in rows if {key: (default | row)[key] for key in how} == how]


def _load(row: Mapping[str, Any]) -> tuple[str, float, int]:
    return row["task"], row["temperature"], row["batch"]


def _loads(asked: argparse.Namespace) -> set[tuple[str, float, int]]:
    return set(product(asked.tasks, asked.temperatures, asked.batches))


def line(row: dict[str, Any]) -> str:
    """A load in words."""
    return (
        f"{row['task']:6s} T {row['temperature']:.1f} batch {row['batch']}: "
        f"{row['regret']:+6.1%} ({row['low']:+.1%} to {row['high']:+.1%}) "
        f"{row['chosen']} | best of {row['contenders']}: {row['best']}"
    )


def tell(description: str, done: int, total: int) -> None:
    """Progress on stderr, a line every quarter."""
    if total > 50 and done % (total // 4) == 0:
        print(f"{time.strftime('%H:%M:%S')} {description} {done}/{total}", file=sys.stderr)


def main() -> None:
    """Measure what is not measured yet, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0, help="per contest; half per duel")
    parser.add_argument("--tune", type=float, default=0.0, help="minutes per task and temperature")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--temperatures", nargs="+", type=float, default=list(TEMPERATURES))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--split", choices=(PROFILE, BENCH), default=BENCH, help="prompts that run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = measure(options)
    regrets = [max(row["regret"], 0.0) for row in rows]
    result = {
        "loads": rows,
        "mean_regret": sum(regrets) / len(regrets),
        "worst_regret": max(regrets),
    }
    if options.json:
        print(json.dumps(result))
        return
    print("\n".join(map(line, rows)))
    print(f"mean {result['mean_regret']:.1%}, worst {result['worst_regret']:.1%}")


if __name__ == "__main__":
    main()
