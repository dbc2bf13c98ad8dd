"""How fast is every method, how fast was it predicted to be, and was the right one chosen?

    python benchmarks/methods.py --work DIR [--methods NAME ...] [--heads NAME ...] [--json]

A column is a task, a temperature and a batch size on the reference pair. In each, the best-priced
plan of every method that runs continues the same held-out prompts as plain decoding, turn by turn,
and `transformers` with its assisted modes beside them; acceptance is measured on other prompts. A
cell holds tokens per round, seconds per token as measured and predicted, and the speed over plain
decoding. Then the planner's pick meets all plans near the fastest on prompts that none of them has
seen, as in `regret.py`: it loses what the best of them saves there. The pick is that of
`specplan optimize`; with `--tune MINUTES` that of `specplan tune`, which runs the likely plans on
the prompts that acceptance is measured on, meets them too.

With `--join` the cells of a few methods are put into the columns of an earlier result, whose picks
were made without them.

Cells and finals are files in DIR and are not run again for the same plans and versions; so is
everything else that is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from method_tables import joined, summary, table
from reference_problem import corpus, dealt_problem
from regret import TASKS, TEMPERATURES, one_load, priced_for, tell, tuned_for

from specplan.cost_models.forecast import Forecast
from specplan.gathering import gather
from specplan.ir.files import name_of, read_json, write_json_atomic
from specplan.measure.bench.bench import Comparison, Line, compare
from specplan.measure.machine import versions
from specplan.measure.workbench import BENCH, Workbench
from specplan.planner import PLAIN, Candidate, SearchResult, discover_methods, load_problem
from specplan.planner.search.candidates import estimate_as_dict
from specplan.planner.search.comparing import cell_costs
from specplan.planner.search.search import search
from specplan.tuning import tune

BATCHES = (1, 4)
OUTPUT_TOKENS = 64
NEAR = 0.15
"""Plans that took at most this part longer than the fastest of their column meet its pick."""
PEERS = {
    "draft_model": "transformers.generate, assistant draft",
    "early_exit": "transformers.generate, early exit",
    "prompt_lookup": "transformers.generate, prompt lookup",
}
"""What `transformers` calls the same method."""


def column_problem(asked: argparse.Namespace, task: str, temperature: float) -> Path:
    """The problem of one task and temperature, with every source there is.

    Args:
        asked: the command line; without methods, all that the reference pair has drafters for.
        task: `code` or `prose`.
        temperature: of sampling.
    """
    work: Path = asked.work
    methods: list[str] = asked.methods
    described = dealt_problem(
        work,
        task,
        asked.seed,
        batches=asked.batches,
        output_tokens=OUTPUT_TOKENS,
        temperature=temperature,
        profiled=asked.profiled,
        heads=asked.heads,
    )
    every = discover_methods()
    wanted = [name for name in methods or every if every[name].runnable]
    sources = {source for name in wanted for source in every[name].sources}
    described["sources"] = sorted(sources)
    if methods:  # named ones have to be such as can be tried
        described["methods"] = wanted
    if "datastore" in sources:
        described["datastore"] = str(corpus(work, task))
    path = work / f"{task}-{temperature}.json"
    write_json_atomic(path, described)
    return path


def best_of_methods(searched: SearchResult, cell: int) -> dict[str, Candidate]:
    """The plan of each method that is priced lowest for one load."""
    objective = searched.facts.objective
    best: dict[str, Candidate] = {}
    for other in searched.candidates:
        if not other.priced or other.unsupported or other.by_cell:
            continue
        known = best.get(other.method)
        if known is None or cell_costs(other, objective)[cell] < cell_costs(known, objective)[cell]:
            best[other.method] = other
    return best | {PLAIN: searched.plain}


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: task and temperature.
        bench: their problem.
        best: the plan of each method, as priced for the batch.
        batch: requests decoded together.
        asked: the command line.
    """

    name: str
    bench: Workbench
    best: Mapping[str, Candidate]
    batch: int
    asked: argparse.Namespace

    def cells(self) -> dict[str, Any]:
        """All cells, and the peers of those that have one."""
        about = (self.asked.prompts, self.asked.repeats, self.asked.seed)
        return self._stored("cells", [*self.best.values()], about, self._run_cells)

    def contested(
        self, pick: Candidate, other: Candidate, cells: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """A pick, and what it loses to the other one and those near the fastest of the cells."""
        reach = (1.0 + NEAR) * min(each["seconds_per_token"] for each in cells)
        near = [self.best[each["method"]] for each in cells if each["seconds_per_token"] <= reach]
        near = [*{text_of(plan): plan for plan in (*near, other, pick)}.values()]
        near.sort(key=lambda plan: plan is not pick)  # it comes first
        about = (self.asked.prompts, self.asked.seconds, self.asked.seed)
        final = self._stored("finals", near, about, partial(self._run_final, near))
        return {"pick": pick.method, "regret": final.pop("regret"), "final": final}

    def _run_cells(self) -> dict[str, Any]:
        plans = {}
        for method, candidate in self.best.items():
            estimate = next(e for e in candidate.estimates if e.batch == self.batch)
            assert candidate.plan is not None
            plans[method] = candidate.plan, Forecast.from_dict(estimate_as_dict(estimate))
        exiting = self.best.get("early_exit")
        comparison = compare(
            self.bench,
            plans,
            batch=self.batch,
            limit=self.asked.prompts,
            repeats=self.asked.repeats,
            exit_layer=exiting.options["exit_layer"] if exiting else None,
            progress=tell,
        )
        return {
            "prompts": self.asked.prompts,
            "repeats": self.asked.repeats,
            "cells": [cell(comparison.line(method), taken) for method, taken in self.best.items()],
            "peers": list(peers(comparison, self.bench.problem.workload.temperature == 0)),
            "hardware": comparison.hardware,
            "versions": dict(comparison.versions),
        }

    def _run_final(self, near: Sequence[Candidate]) -> dict[str, Any]:
        """The pick, which comes first, against the others on prompts that none has seen."""
        unseen = self.bench.prompts(BENCH)[self.asked.prompts :]
        if len(unseen) < max(BATCHES):
            raise SystemExit(f"{len(unseen)} prompts are left for the finals: fewer --prompts")
        draws = random.Random(self.asked.seed)
        seconds = self.asked.seconds
        return one_load(self.bench, near[0], near, unseen, self.batch, seconds, draws)

    def _stored(
        self,
        kind: str,
        plans: Sequence[Candidate],
        about: Sequence[Any],
        run: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """What a run of these plans found, read from its file if it was run before."""
        texts = [*map(text_of, plans), *about, OUTPUT_TOKENS, versions()]
        mark = name_of(json.dumps(texts, sort_keys=True))
        path = self.asked.work / kind / f"{self.name}-{self.batch}-{mark}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(path, run())
        return dict(read_json(path, "results"))


def cell(line: Line, candidate: Candidate) -> dict[str, Any]:
    """One method in one column."""
    assert line.predicted is not None
    return {
        "method": line.name,
        "words": candidate.words,
        "tokens_per_round": line.tokens_per_round,
        "seconds_per_token": 1.0 / line.tokens_per_second,
        "predicted_seconds_per_token": 1.0 / float(line.predicted.mean),
        "ratio": line.against_baseline,
        "differing": line.differing,
    }


def peers(comparison: Comparison, greedy: bool) -> Iterator[dict[str, Any]]:
    """Methods that `transformers` has too, ours beside theirs.

    Where nothing is sampled, `different_outputs` counts the prompts whose outputs are not the same;
    sampled outputs have no draws in common, and it is None.
    """
    lines = {line.name: line for line in comparison.lines}
    for method, name in PEERS.items():
        if method in lines and name in lines:
            pairs = zip(comparison.outputs[method], comparison.outputs[name], strict=True)
            yield {
                "method": method,
                "ratio": lines[method].tokens_per_second / lines[name].tokens_per_second,
                "different_outputs": sum(a != b for a, b in pairs) if greedy else None,
            }


def columns(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every column that is asked for; what an earlier run stored is read from its files."""
    for temperature, task in product(asked.temperatures, asked.tasks):
        path = column_problem(asked, task, temperature)
        priced, tuned = search(gather(load_problem(path), tell, tuned=False)), None
        if asked.tune:
            tuned = tune(path, minutes=asked.tune, progress=tell).result.search
        bench = Workbench(load_problem(path))
        for place, batch in enumerate(asked.batches):
            column = Column(path.stem, bench, best_of_methods(priced, place), batch, asked)
            measured = column.cells()
            named = {"task": task, "temperature": temperature, "batch": batch}
            by_price = priced_for(priced, place)
            by_runs = by_price if tuned is None else tuned_for(tuned, place)
            named |= column.contested(by_price, by_runs, measured["cells"])
            if tuned is not None:
                contested = column.contested(by_runs, by_price, measured["cells"])
                named["tuned"] = {"minutes": asked.tune, **contested}
            yield named | measured


def text_of(candidate: Candidate) -> str:
    """A candidate's plan as text."""
    return str(candidate.as_dict()["plan"])


def main() -> None:
    """Run the columns that are not run yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16, help="continued per column")
    parser.add_argument(
        "--profiled",
        type=int,
        default=40,
        help="prompts of acceptance, which settings of some methods run round by round",
    )
    parser.add_argument("--repeats", type=int, default=2, help="runs of each prompt in new columns")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the pick's contest")
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--heads", nargs="*", default=[], help="of the target, that draft too")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--temperatures", nargs="+", type=float, default=TEMPERATURES)
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES, default=BATCHES)
    parser.add_argument("--tune", type=float, default=0.0, help="minutes per task and temperature")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--join", type=Path, help="a result whose columns these cells join")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known = read_json(options.join)["columns"] if options.join else []
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    measured = []
    for column in columns(options):
        measured.append(column)
        print(table(column), file=sys.stderr, flush=True)
    result = summary(joined(known, measured) if known else measured)
    if options.json:
        print(json.dumps(result))
        return
    print("\n".join(map(table, measured)))
    print(json.dumps({k: v for k, v in result.items() if k != "columns"}, indent=2))


if __name__ == "__main__":
    main()
