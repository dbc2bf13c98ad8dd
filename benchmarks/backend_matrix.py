"""Does every backend decode every kind of plan as the interpreter does?

    python benchmarks/backend_matrix.py --work DIR [--prompts 100] [--temperatures 0 0.8] [--json]

Kinds of plans are those of all methods that run, with all their sources and a datastore: of every
family for the reference pair one setting for each set of ops that its plans hold. Acceptance is
measured on a few prompts, but for settings that are measured by running them: of these all are
taken. Each kind is run by each backend that is here, at batch 1 and 4, greedily and sampled, on
prompts of examples/prompts (half code, half prose) in float32, and compared with the interpreter
at the same batch, temperature and seeds:

- `different`: prompts whose tokens differ. Greedily each with its margin, how far apart the
  target's logits of the first two tokens that differ are: a tie up to `NEAR_TIE`. Sampled, a tie
  where the interpreter's own token changes when its weights are moved by 1e-5 of themselves.
- `logits`: the largest difference of the logits that the target judges by, over a round in the
  middle of a batch, run by both on the same texts and caches; relative to the largest logit too.
- `refused`: what the backend says that it cannot do. `failed`: the error of a compiler.

The exit status is 1 where tokens differ beyond a tie, logits by more than `LOGITS` of the largest,
or something failed.

A cell is a file in DIR/cells, and is not run again for the same plan, temperature, number of
prompts, versions and sources; compiled rounds serve any number of prompts. All kinds come first by
the backend that compiles fastest, at batch 1 and temperature 0: a run that is stopped has gone
through most of them, and `--prompts 2` soon through all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matrix_cells import OUTPUT_TOKENS, PROMPT_TOKENS, Cell, Matrix, made_with
from matrix_kinds import kinds
from reference_problem import ROOT, corpus

from specplan.backends.registry import round_backend, round_backends
from specplan.ir.plan import Plan, walk_plan
from specplan.measure.machine import hardware_name
from specplan.measure.workbench import Workbench
from specplan.planner import discover_methods
from specplan.planner.problem.loading import problem_from_dict
from specplan.runtime.requests import Request

BATCHES, TEMPERATURES = (1, 4), (0.0, 0.8)
LOGITS = 1e-5
"""Of the largest logit: the bound that docs/compiled_rounds.md states for float32."""
FASTEST = ("onnxruntime", "inductor")
"""Backends, the one that compiles fastest first; others come last."""


def reference_pair(work: Path, temperature: float, methods: Sequence[str]) -> dict[str, Any]:
    """The problem whose methods are looked at, with all sources that they draft from."""
    models, every = ROOT / "examples/reference_models", discover_methods()
    wanted = [name for name in methods or every if every[name].runnable]
    sources = {source for name in wanted for source in every[name].sources}
    prompts = ROOT / "examples/prompts/code.jsonl"
    datastore = {"datastore": str(corpus(work, "code"))} if "datastore" in sources else {}
    return datastore | {
        "schema_version": 1,
        "models": {
            "target": {"path": str(models / "target"), "dtype": "float32"},
            "drafts": [{"name": "draft", "path": str(models / "draft"), "dtype": "float32"}],
        },
        "methods": wanted,
        "sources": sorted(sources),
        "device": "cpu-generic",
        "workload": {
            "batch_sizes": list(BATCHES),
            "prompt_tokens": PROMPT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "temperature": temperature,
            "prompts": str(prompts),
            "task": "code",
        },
        "profiles": str(work / "profiles"),
    }


def requests_of(bench: Workbench, count: int, temperature: float) -> list[Request]:
    """Prompts, half code and half prose, each with a seed of its own."""
    texts = []
    for task in ("code", "prose"):
        lines = (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
        texts += [json.loads(line)["text"] for line in lines[: (count + 1) // 2]]
    return [
        Request(
            prompt_tokens=tuple(bench.tokenizer.encode(text)[-PROMPT_TOKENS:]),
            max_new_tokens=OUTPUT_TOKENS,
            temperature=temperature,
            seed=seed,
            stop_tokens=bench.tokenizer.stop_tokens,
        )
        for seed, text in enumerate(texts[:count])
    ]


def ordered(
    by_temperature: dict[float, list[tuple[str, Plan]]], backends: Sequence[str]
) -> list[Cell]:
    """All cells, so that what comes first has seen every kind for the least time.

    Args:
        by_temperature: kinds of plans by temperature.
        backends: names.
    """
    cells = [
        Cell(kind, plan, backend, batch, temperature)
        for temperature, plans in by_temperature.items()
        for kind, plan in plans
        for backend in backends
        for batch in BATCHES
    ]
    places = {name: place for place, name in enumerate(FASTEST)}

    def cost(cell: Cell) -> tuple[float, ...]:
        place = places.get(cell.backend, len(places))
        return place, cell.batch, cell.temperature, sum(1 for _ in walk_plan(cell.plan))

    return sorted(cells, key=cost)


def filled(
    cells: Sequence[Cell], find: Callable[[Cell], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Each cell's results; progress goes to stderr."""
    for place, cell in enumerate(cells, 1):
        start = time.perf_counter()
        filled_cell = find(cell)
        seconds = time.perf_counter() - start
        line = f"cell {place} of {len(cells)}, {seconds:.1f} s: {words_of(filled_cell)}"
        print(line, file=sys.stderr, flush=True)
        yield filled_cell


def words_of(cell: dict[str, Any]) -> str:
    """A cell's results as a line."""
    named = "{kind}, {backend}, batch {batch}, temperature {temperature:g}: ".format_map(cell)
    if "prompts" not in cell:
        return named + (cell.get("refused") or f"failed, {cell['failed']}")
    real = sum(not item["tie"] for item in cell["different"])
    return named + (
        f"{len(cell['different'])} of {cell['prompts']} differ, {real} beyond a tie, "
        f"logits within {cell['logits']['relative']:.1e} of the largest, "
        f"{cell['seconds_per_round'] * 1e3:.2f} ms a round"
    )


def summary(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What came of all cells, by backend."""
    by_backend: dict[str, Any] = {}
    for backend in sorted({cell["backend"] for cell in cells}):
        mine = [cell for cell in cells if cell["backend"] == backend]
        ran = [cell for cell in mine if "prompts" in cell]
        different = [item for cell in ran for item in cell["different"]]
        logits = [cell["logits"] for cell in ran]
        by_backend[backend] = {
            "cells": len(ran),
            "refused": sum("refused" in cell for cell in mine),
            "failed": sum("failed" in cell for cell in mine),
            "prompts": sum(cell["prompts"] for cell in ran),
            "different": len(different),
            "beyond_a_tie": sum(not item["tie"] for item in different),
            "largest_logit_difference": max((each["absolute"] for each in logits), default=0.0),
            "relative": max((each["relative"] for each in logits), default=0.0),
        }
    return by_backend


def complaints(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Cells that break what the docs promise."""
    return [
        words_of(cell)
        for cell in cells
        if "failed" in cell
        or not all(item["tie"] for item in cell.get("different", ()))
        or not cell.get("logits", {}).get("relative", 0.0) <= LOGITS
    ]


def main() -> None:
    """Fill what is not filled yet, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--backends", nargs="*", default=list(round_backends()))
    parser.add_argument("--temperatures", nargs="+", type=float, default=TEMPERATURES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    problems = {t: reference_pair(work, t, options.methods) for t in options.temperatures}
    bench = Workbench(problem_from_dict(next(iter(problems.values())), work))
    requests = {t: requests_of(bench, options.prompts, t) for t in problems}
    plans = {t: list(kinds(problem, work)) for t, problem in problems.items()}
    here = [name for name in options.backends if round_backend(name).available() is None]
    matrix = Matrix(work, bench.models, requests)
    cells = list(filled(ordered(plans, here), matrix.find))
    result = {
        "backends": summary(cells),
        "cells": cells,
        "hardware": hardware_name(bench.models["target"].device),
        "versions": made_with(),
    }
    print(json.dumps(result if options.json else result["backends"], indent=2))
    broken = complaints(cells)
    if broken:
        raise SystemExit("\n".join(["broken:", *broken]))


if __name__ == "__main__":
    main()
