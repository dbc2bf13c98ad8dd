"""Does every backend decode every kind of plan as the interpreter does?

    python benchmarks/backend_matrix.py --work DIR [--prompts 100] [--methods NAME ...] [--json]

Kinds of plans are those of the methods themselves, those offered by name only among them: of every
family for the reference pair one setting for each set of ops that its plans hold. Acceptance is
measured on a few prompts, but for settings that are measured by running them: of these all are
taken. Each kind is run by each backend
that is here at batch 1 and 4 on prompts of examples/prompts (half code, half prose), greedily in
float32, and compared with the interpreter at the same batch:

- `different`: prompts whose tokens differ, each with the margin: how far apart the target's logits
  of the first two tokens that differ are. A margin near 0 is a tie that rounding broke.
- `logits`: the largest difference of the logits that the target judges by, over a round in the
  middle of a batch, run by both on the same texts and caches; relative to the largest logit too.

A cell is a file in DIR/cells, and is not run again for the same plan, prompts and versions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matrix_kinds import kinds
from reference_problem import ROOT
from torch import Tensor

from specplan.backends.reference.backend import ReferenceBackend
from specplan.backends.registry import round_backend, round_backends
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import RoundTensors
from specplan.backends.static.session import Program
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import name_of, read_json, write_json_atomic
from specplan.ir.folders import staged
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.measure.machine import hardware_name, versions
from specplan.measure.teacher import text_logits
from specplan.measure.workbench import Workbench
from specplan.planner.loading import problem_from_dict
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request

BATCHES = (1, 4)
OUTPUT_TOKENS = 48
PROBED_ROUND = 4
NEAR_TIE = 1e-3
"""Logits: what float32 rounds differently over some twenty layers, with room."""


@dataclass(frozen=True)
class Matrix:
    """What all cells share.

    Attributes:
        work: folder of the cells and of what is compiled.
        models: by the names plans give them.
        requests: greedy, the same for all.
    """

    work: Path
    models: dict[str, CausalModel]
    requests: list[Request]

    def cell(self, kind: str, plan: Plan, backend: str, batch: int) -> dict[str, Any]:
        """One cell, from its file where it is there."""
        key = [print_plan(plan), len(self.requests), OUTPUT_TOKENS, versions()]
        mark = name_of(json.dumps(key))
        path = self.work / "cells" / f"{name_of(kind)}-{backend}-b{batch}.json"
        if path.is_file():
            found = read_json(path, "cell")
            if found["mark"] == mark:
                return dict(found)
        print(f"{kind}, {backend}, batch {batch}", file=sys.stderr, flush=True)
        home = self.work / "packages" / mark / backend
        found = {"kind": kind, "backend": backend, "batch": batch, "mark": mark}
        found |= self._run(kind, plan, backend, batch, home)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, found)
        return found

    def _run(self, kind: str, plan: Plan, backend: str, batch: int, home: Path) -> dict[str, Any]:
        models = {name: self.models[name] for name in plan.models_run}
        if backend == "reference":
            tokens, seconds = self._tokens(ReferenceBackend().compile(plan, models), batch)
            return {"tokens": tokens, "seconds_per_round": seconds}
        bucket = Bucket(batch, max(len(r.prompt_tokens) for r in self.requests) + OUTPUT_TOKENS)
        try:
            compiled = round_backend(backend).compile(plan, models, home, [bucket])
        except MissingCapabilityError as error:
            return {"refused": str(error)}
        tokens, seconds = self._tokens(compiled, batch)
        expected = self.cell(kind, plan, "reference", batch)["tokens"]
        different = [
            {"prompt": place, "margin": self._margin(place, mine, theirs)}
            for place, (mine, theirs) in enumerate(zip(tokens, expected, strict=True))
            if mine != theirs
        ]
        return {
            "prompts": len(tokens),
            "different": different,
            "logits": logits_apart(plan, models, backend, bucket, self.requests[:batch], home),
            "seconds_per_round": seconds,
        }

    def _tokens(self, executable: Executable, batch: int) -> tuple[list[list[int]], float]:
        """Tokens per request, and seconds per round."""
        groups = [
            self.requests[i : i + batch] for i in range(0, len(self.requests) - batch + 1, batch)
        ]
        generate(executable, groups[0])  # compiles
        runs = [generate(executable, group) for group in groups]
        tokens = [list(item.tokens) for run in runs for item in run.completions]
        rounds = sum(run.rounds for run in runs)
        return tokens, sum(run.decode_seconds for run in runs) / max(rounds, 1)

    def _margin(self, prompt: int, mine: Sequence[int], theirs: Sequence[int]) -> float:
        """How far apart the target's logits of the first two tokens that differ are."""
        place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
        text = [*self.requests[prompt].prompt_tokens, *theirs[: place + 1]]
        logits = text_logits(self.models["target"], text, len(text) - 1)[0]
        return float((logits[mine[place]] - logits[theirs[place]]).abs())


class JudgedLogits(RoundGraph):
    """A round that tells the logits that the target judges by, in place of the tokens."""

    def run(self, given: RoundTensors) -> Tensor:
        """See `RoundGraph.judged`."""
        return self.judged(given)


def logits_apart(
    plan: Plan,
    models: dict[str, CausalModel],
    backend: str,
    bucket: Bucket,
    requests: Sequence[Request],
    home: Path,
) -> dict[str, float]:
    """The largest difference of judged logits in one round, and relative to the largest logit."""
    caught: list[tuple[RoundGraph, list[Tensor]]] = []

    def catch(graph: RoundGraph, *_: object) -> Program:
        def watched(*tensors: Tensor) -> Tensor:
            caught.append((graph, [tensor.clone() for tensor in tensors]))
            found: Tensor = graph(*tensors)
            return found

        return watched

    generate(StaticExecutable(plan, models, catch, [bucket]), requests)
    graph, tensors = caught[min(PROBED_ROUND, len(caught) - 1)]
    probe = JudgedLogits(graph.plan, graph.item, graph.models, graph.sampling)
    folder = home / f"logits-{bucket.word}"
    if not folder.is_dir():
        with staged(folder) as staging:
            round_backend(backend).write(probe, tensors, staging)
    with torch.inference_mode():
        expected = probe(*(tensor.clone() for tensor in tensors))
        found = round_backend(backend).load(folder, models)(*tensors)
    apart = float((found - expected).abs().max())
    return {"absolute": apart, "relative": apart / float(expected.abs().max())}


def reference_pair(work: Path, methods: Sequence[str] | None) -> dict[str, Any]:
    """The problem whose methods are looked at."""
    models = ROOT / "examples/reference_models"
    problem: dict[str, Any] = {
        "schema_version": 1,
        "models": {
            "target": {"path": str(models / "target"), "dtype": "float32"},
            "drafts": [{"name": "draft", "path": str(models / "draft"), "dtype": "float32"}],
        },
        "sources": ["prompt_lookup"],
        "device": "cpu-generic",
        "workload": {
            "batch_sizes": list(BATCHES),
            "prompt_tokens": 150,
            "output_tokens": OUTPUT_TOKENS,
            "prompts": str(ROOT / "examples/prompts/code.jsonl"),
            "task": "code",
        },
        "profiles": str(work / "profiles"),
    }
    return problem | ({"methods": list(methods)} if methods else {})


def requests_of(bench: Workbench, count: int) -> list[Request]:
    """Prompts, half code and half prose."""
    texts = []
    for task in ("code", "prose"):
        lines = (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
        texts += [json.loads(line)["text"] for line in lines[: (count + 1) // 2]]
    return [
        Request(
            prompt_tokens=tuple(bench.tokenizer.encode(text)[-bench.prompt_tokens :]),
            max_new_tokens=OUTPUT_TOKENS,
            stop_tokens=bench.tokenizer.stop_tokens,
        )
        for text in texts[:count]
    ]


def summary(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What came of all cells, by backend."""
    found: dict[str, Any] = {}
    for backend in sorted({cell["backend"] for cell in cells}):
        ran = [c for c in cells if c["backend"] == backend and "prompts" in c]
        margins = [item["margin"] for cell in ran for item in cell["different"]]
        found[backend] = {
            "cells": len(ran),
            "refused": sum(c["backend"] == backend and "refused" in c for c in cells),
            "prompts": sum(cell["prompts"] for cell in ran),
            "different": len(margins),
            "beyond_a_near_tie": sum(margin > NEAR_TIE for margin in margins),
            "largest_logit_difference": max((c["logits"]["absolute"] for c in ran), default=0.0),
        }
    return found


def main() -> None:
    """Fill what is not filled yet, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--backends", nargs="*", default=list(round_backends()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    problem = reference_pair(work, options.methods)
    bench = Workbench(problem_from_dict(problem, work))
    matrix = Matrix(work, bench.models, requests_of(bench, options.prompts))
    cells = []
    for kind, plan in kinds(problem, work):
        for backend in options.backends:
            if round_backend(backend).available() is None:
                cells += [matrix.cell(kind, plan, backend, batch) for batch in BATCHES]
    result = {
        "backends": summary(cells),
        "cells": cells,
        "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }
    if options.json:
        print(json.dumps(result))
        return
    for cell in cells:
        words = cell.get("refused") or (
            f"{len(cell['different'])} of {cell['prompts']} differ, logits within "
            f"{cell['logits']['absolute']:.1e}, {cell['seconds_per_round'] * 1e3:.2f} ms a round"
        )
        print(f"{cell['kind']}, {cell['backend']}, batch {cell['batch']}: {words}")
    print(json.dumps(result["backends"], indent=2))


if __name__ == "__main__":
    main()
