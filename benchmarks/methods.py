"""How fast is every method, how fast was it predicted to be, and was the right one chosen?

    python benchmarks/methods.py --work DIR [--methods NAME ...] [--json]

A column is a task, a temperature and a batch size on the reference pair. In each, the best-priced
plan of every method that runs continues the same held-out prompts as plain decoding, turn by turn,
and `transformers` with its assisted modes beside them; acceptance is measured on other prompts. A
cell holds tokens per round, seconds per token as measured and predicted, and the speed over plain
decoding. Then the planner's pick meets all plans near the fastest on prompts that none of them has
seen, as in `regret.py`: it loses what the best of them saves there.

A column is a file in DIR/columns and is not run again for the same plans and versions. Everything
else that is measured is kept in DIR too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from reference_problem import ROOT, dealt_problem
from regret import TASKS, TEMPERATURES, one_load, tell

from specplan import api
from specplan.cost_models.forecast import Forecast
from specplan.datastores import build_datastore
from specplan.ir.files import read_json, write_atomic, write_json_atomic
from specplan.measure.bench import Comparison, Line, compare
from specplan.measure.machine import versions
from specplan.measure.workbench import BENCH, Workbench
from specplan.planner import PLAIN, Candidate, SearchResult, discover_methods, load_problem
from specplan.planner.candidates import estimate_as_dict
from specplan.planner.comparing import cell_costs

BATCHES = (1, 4)
OUTPUT_TOKENS = 64
PROFILED = 40
"""Prompts that acceptance is measured on. A hundred settings run all of them, round by round."""
CORPUS_BYTES = 4_000_000
CLOSE = 0.15
"""A prediction within this part of the measured time counts as right."""
NEAR = 0.15
"""Plans that took at most this part longer than the fastest of their column meet its pick."""
PEERS = {
    "draft_model": "transformers.generate, assistant draft",
    "early_exit": "transformers.generate, early exit",
    "prompt_lookup": "transformers.generate, prompt lookup",
}
"""What `transformers` calls the same method."""


def corpus(work: Path, prompts: Path) -> Path:
    """A datastore of the prompts that acceptance is measured on and of Python's own library."""
    rows = map(json.loads, prompts.read_text("utf-8").splitlines())
    texts = [row["text"] for row in rows if row["split"] == "profile"]
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        texts.append(path.read_text("utf-8", errors="replace"))
        size += len(texts[-1])
        if size > CORPUS_BYTES:
            break
    folder, text = work / f"datastore-{prompts.stem}", work / f"corpus-{prompts.stem}.txt"
    write_atomic(text, "\n".join(texts))
    build_datastore(text, folder, ROOT / "examples/reference_models/target")
    return folder


def column_problem(
    work: Path, task: str, temperature: float, seed: int, methods: Sequence[str]
) -> Path:
    """The problem of one task and temperature, with every method and source there is."""
    described = dealt_problem(
        work,
        task,
        seed,
        batches=BATCHES,
        output_tokens=OUTPUT_TOKENS,
        temperature=temperature,
        profiled=PROFILED,
    )
    every = discover_methods()
    wanted = [name for name in methods or every if every[name].runnable]
    sources = {source for name in wanted for source in every[name].sources}
    described |= {"methods": wanted, "sources": sorted(sources)}
    if "datastore" in sources:
        described["datastore"] = str(corpus(work, Path(described["workload"]["prompts"])))
    path = work / f"{task}-{temperature}.json"
    write_json_atomic(path, described)
    return path


def best_of_methods(found: SearchResult, cell: int) -> tuple[str, dict[str, Candidate]]:
    """The method picked for one load, and the plan of each method that is priced lowest there."""
    pick = found.best_of_each[cell]
    assert pick is not None, "nothing limits these problems"
    objective = found.facts.problem.objective
    best: dict[str, Candidate] = {}
    for other in found.candidates:
        if not other.priced or other.unsupported or other.by_cell:
            continue
        known = best.get(other.method)
        if known is None or cell_costs(other, objective)[cell] < cell_costs(known, objective)[cell]:
            best[other.method] = other
    return pick.method, best | {PLAIN: found.plain, pick.method: pick}


def run_column(
    bench: Workbench,
    best: Mapping[str, Candidate],
    pick: str,
    batch: int,
    asked: argparse.Namespace,
) -> dict[str, Any]:
    """All cells of a column, the peers of those that have one, and what the pick loses."""
    unseen = bench.prompts(BENCH)[asked.prompts :]
    if len(unseen) < max(BATCHES):
        raise SystemExit(f"{len(unseen)} prompts are left for the pick's contest: fewer --prompts")
    plans = {}
    for method, candidate in best.items():
        estimate = next(e for e in candidate.estimates if e.batch == batch)
        assert candidate.plan is not None
        plans[method] = candidate.plan, Forecast.from_dict(estimate_as_dict(estimate))
    exiting = best.get("early_exit")
    told = compare(
        bench,
        plans,
        chosen=pick,
        batch=batch,
        limit=asked.prompts,
        repeats=asked.repeats,
        exit_layer=exiting.options["exit_layer"] if exiting else None,
        progress=tell,
    )
    took = {method: 1.0 / told.line(method).tokens_per_second for method in best}
    reach = (1.0 + NEAR) * min(took.values())
    near = [best[method] for method in best if method == pick or took[method] <= reach]
    draws = random.Random(asked.seed)
    final = one_load(bench, best[pick], near, unseen, batch, asked.seconds, draws)
    return {
        "pick": pick,
        "fastest": min(took, key=took.__getitem__),
        "regret": final.pop("regret"),
        "final": final,
        "cells": [cell(told.line(method), best[method]) for method in best],
        "peers": list(peers(told)),
        "hardware": told.hardware,
        "versions": dict(told.versions),
    }


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


def peers(told: Comparison) -> Iterator[dict[str, Any]]:
    """Methods that `transformers` has too, ours beside theirs."""
    lines = {line.name: line for line in told.lines}
    for method, name in PEERS.items():
        if method in lines and name in lines:
            ours, theirs = lines[method], lines[name]
            yield {
                "method": method,
                "ratio": ours.tokens_per_second / theirs.tokens_per_second,
                "differing": abs(ours.differing - theirs.differing),
            }


def columns(work: Path, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every column that is asked for, those that an earlier run stored read from their files."""
    for temperature, task in product(asked.temperatures, asked.tasks):
        path = column_problem(work, task, temperature, asked.seed, asked.methods)
        found = api.optimize(path, progress=tell).search
        bench = Workbench(load_problem(path))
        for batch in asked.batches:
            pick, best = best_of_methods(found, BATCHES.index(batch))
            texts = {name: candidate.as_dict()["plan"] for name, candidate in best.items()}
            about = [asked.prompts, asked.seconds, asked.seed, OUTPUT_TOKENS, versions()]
            key = json.dumps([texts, *about], sort_keys=True)
            mark = hashlib.sha256(key.encode()).hexdigest()[:16]
            stored = work / "columns" / f"{task}-{temperature}-{batch}-{mark}.json"
            if not stored.is_file():
                column = run_column(bench, best, pick, batch, asked)
                stored.parent.mkdir(parents=True, exist_ok=True)
                named = {"task": task, "temperature": temperature, "batch": batch}
                named |= {"prompts": asked.prompts, "repeats": asked.repeats}
                write_json_atomic(stored, named | column)
            yield dict(read_json(stored, "column"))


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the issue of predictions and of choices comes down to."""
    errors = [
        each["predicted_seconds_per_token"] / each["seconds_per_token"] - 1.0
        for column in found
        for each in column["cells"]
    ]
    regrets = [max(column["regret"], 0.0) for column in found]
    return {
        "date": date.today().isoformat(),
        "columns": list(found),
        "cells": len(errors),
        "predicted_within_15_percent": fmean(abs(error) <= CLOSE for error in errors),
        "mean_error": fmean(errors),
        "mean_regret": fmean(regrets),
        "worst_regret": max(regrets),
    }


def table(column: Mapping[str, Any]) -> str:
    """A column in words, fastest first."""
    title = "{task}, temperature {temperature}, batch {batch}".format_map(column)
    final = column["final"]
    rows = [
        f"\n{title}: picked {column['pick']}; {final['best']} saves {column['regret']:.1%} "
        f"({final['low']:.1%} to {final['high']:.1%}, {final['turns']} turns)"
    ]
    for each in sorted(column["cells"], key=lambda one: one["seconds_per_token"]):
        measured, predicted = each["seconds_per_token"], each["predicted_seconds_per_token"]
        rows.append(
            f"  {each['method']:20s} {each['tokens_per_round']:5.2f} tokens a round, "
            f"{measured * 1e3:6.2f} ms a token, predicted {predicted * 1e3:6.2f} "
            f"({predicted / measured - 1:+4.0%}), {each['ratio']:.2f} x plain; {each['words']}"
        )
    for peer in column["peers"]:
        rows.append(f"  {peer['ratio']:.2f} x transformers' {peer['method']}")
    return "\n".join(rows)


def main() -> None:
    """Run the columns that are not run yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16, help="continued per column")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each prompt in new columns")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the pick's contest")
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--temperatures", nargs="+", type=float, default=TEMPERATURES)
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES, default=BATCHES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    found = []
    for column in columns(work, options):
        found.append(column)
        print(table(column), file=sys.stderr, flush=True)
    result = summary(found)
    if options.json:
        print(json.dumps(result))
        return
    print("\n".join(map(table, found)))
    print(json.dumps({k: v for k, v in result.items() if k != "columns"}, indent=2))


if __name__ == "__main__":
    main()
