"""One cell of the backends' matrix: a plan, a backend, a batch size and a temperature."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from reference_problem import ROOT
from torch import Tensor

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.op_runner import Scope, typed
from specplan.backends.machine import onnxruntime_version
from specplan.backends.ops import lowerings
from specplan.backends.ops.tensors.values import Logits
from specplan.backends.registry import round_backend
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import RoundTensors
from specplan.backends.static.session import Program
from specplan.backends.static.traced.round_run import RoundRun
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import files_digest, name_of, read_json, staged, write_json_atomic
from specplan.ir.ops import Accept
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.measure.acceptance.teacher import text_logits
from specplan.measure.machine import versions
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request

PROMPT_TOKENS, OUTPUT_TOKENS = 150, 48
"""At most, per request. The room for text follows, so that few prompts and many share packages."""
PROBED_ROUND = 4
NEAR_TIE = 1e-3
"""Logits: what float32 rounds differently over some twenty layers, with room."""
SHAKES, SHAKE = 8, 1e-5
"""Times that the interpreter runs with weights moved by so much of themselves, where a sampled
token differs."""
COMPILED_BY = ("ir", "passes", "backends", "runtime")
"""Folders whose sources decide what a cell finds."""


@lru_cache(maxsize=1)
def made_with() -> dict[str, str]:
    """Versions of what takes part, and a digest of the sources that compile and run."""
    sources = [path for folder in COMPILED_BY for path in sorted((ROOT / folder).rglob("*.py"))]
    code = {"code": files_digest(sources)[:16], "onnxruntime": onnxruntime_version()}
    return versions() | code


@dataclass(frozen=True)
class Cell:
    """What one cell looks at.

    Attributes:
        kind: the plan in words.
        plan: as its method writes it for the temperature.
        backend: a name.
        batch: requests decoded together.
        temperature: of all requests.
    """

    kind: str
    plan: Plan
    backend: str
    batch: int
    temperature: float


@dataclass(frozen=True)
class Matrix:
    """What all cells share.

    Attributes:
        work: folder of the cells and of what is compiled.
        models: by the names plans give them.
        requests: of each temperature, the same for all cells of it.
    """

    work: Path
    models: dict[str, CausalModel]
    requests: dict[float, list[Request]]

    def find(self, cell: Cell) -> dict[str, Any]:
        """A cell's results, from its file where they are there."""
        requests = self.requests[cell.temperature]
        text, made = print_plan(cell.plan), made_with()
        mark = name_of(json.dumps([text, cell.temperature, len(requests), OUTPUT_TOKENS, made]))
        place = f"{cell.backend}-b{cell.batch}-t{cell.temperature:g}-p{len(requests)}"
        path = self.work / "cells" / f"{name_of(cell.kind)}-{place}.json"
        if path.is_file():
            filled = read_json(path, "cell")
            if filled["mark"] == mark and "failed" not in filled:
                return dict(filled)
        home = self.work / "packages" / name_of(json.dumps([text, made])) / cell.backend
        filled = {"kind": cell.kind, "backend": cell.backend, "batch": cell.batch}
        filled |= {"temperature": cell.temperature, "mark": mark} | self._run(cell, home)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, filled)
        return filled

    def _run(self, cell: Cell, home: Path) -> dict[str, Any]:
        models = {name: self.models[name] for name in cell.plan.models_run}
        if cell.backend == "eager":
            tokens, seconds = self._tokens(EagerBackend().compile(cell.plan, models), cell)
            return {"tokens": tokens, "seconds_per_round": seconds}
        bucket = Bucket(cell.batch, PROMPT_TOKENS + OUTPUT_TOKENS)
        try:  # rounds are compiled when they first run
            backend = round_backend(cell.backend)
            compiled = backend.compile(cell.plan, models, home, [bucket])
            tokens, seconds = self._tokens(compiled, cell)
            first = self.requests[cell.temperature][: cell.batch]
            difference = logit_difference(cell.plan, models, cell.backend, bucket, first, home)
        except MissingCapabilityError as error:
            return {"refused": str(error)}
        except Exception as error:  # of a compiler, or of what it made: it fills the cell
            return {"failed": f"{type(error).__name__}: {error}"[:500]}
        return {
            "prompts": len(tokens),
            "different": self._different(cell, tokens),
            "logits": difference,
            "seconds_per_round": seconds,
        }

    def _tokens(self, executable: Executable, cell: Cell) -> tuple[list[list[int]], float]:
        """Tokens per request, and seconds per round."""
        requests = self.requests[cell.temperature]
        groups = [requests[i : i + cell.batch] for i in range(0, len(requests), cell.batch)]
        generate(executable, groups[0])  # compiles
        runs = [generate(executable, group) for group in groups]
        tokens = [list(item.tokens) for run in runs for item in run.completions]
        rounds = sum(run.rounds for run in runs)
        return tokens, sum(run.decode_seconds for run in runs) / max(rounds, 1)

    def _different(self, cell: Cell, tokens: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """Prompts whose tokens are not the interpreter's, and whether rounding explains it."""
        expected = self.find(Cell(cell.kind, cell.plan, "eager", cell.batch, cell.temperature))
        different = []
        for prompt, (mine, theirs) in enumerate(zip(tokens, expected["tokens"], strict=True)):
            if list(mine) == theirs:
                continue
            place = first_difference(mine, theirs)
            item: dict[str, Any] = {"prompt": prompt, "place": place}
            if place == min(len(mine), len(theirs)):
                item["tie"] = False
            elif cell.temperature:
                item["tie"] = self._is_tie(cell, prompt, theirs, place)
            else:
                item["margin"] = self._margin(prompt, theirs[:place], mine[place], theirs[place])
                item["tie"] = item["margin"] <= NEAR_TIE
            different.append(item)
        return different

    def _margin(self, prompt: int, before: Sequence[int], one: int, other: int) -> float:
        """How far apart the target's logits of two tokens are after a prompt and what was kept."""
        text = [*self.requests[0.0][prompt].prompt_tokens, *before, other]
        logits = text_logits(self.models["target"], text, len(text) - 1)[0]
        return float((logits[one] - logits[other]).abs())

    def _is_tie(self, cell: Cell, prompt: int, theirs: Sequence[int], place: int) -> bool:
        """Whether the interpreter's own token there changes with the last digits of its weights."""
        start = prompt - prompt % cell.batch
        group = self.requests[cell.temperature][start : start + cell.batch]
        for seed in range(SHAKES):
            moved = {name: shaken(self.models[name], seed) for name in cell.plan.models_run}
            run = generate(EagerBackend().compile(cell.plan, moved), group)
            if first_difference(run.completions[prompt - start].tokens, theirs) == place:
                return True
        return False


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place at which two texts differ; the length of the shorter where one goes on."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


@torch.no_grad()
def shaken(model: CausalModel, seed: int) -> CausalModel:
    """A model whose weights are each moved by about `SHAKE` of themselves."""
    moved, noise = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for weight in moved.weights().values():
        if weight.is_floating_point():
            weight.mul_(1.0 + SHAKE * torch.randn(weight.shape, generator=noise))
    return moved


class JudgedRun(RoundRun):
    """Runs a round, and remembers the logits that the target judged by."""

    def run_accept(self, op: Accept, scope: Scope) -> None:
        """Judge a tree."""
        if op.target is not None:
            self.judged = typed(scope[op.target], Logits)
        scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)


class JudgedLogits(RoundGraph):
    """A round that gives the logits `[B, R, V]` that the target judges by, not its report."""

    def run(self, given: RoundTensors) -> Tensor:
        """The same with tensors by their names."""
        run = JudgedRun(self, given)
        run.report()
        return run.judged.values


def logit_difference(
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
            output: Tensor = graph(*tensors)
            return output

        return watched

    generate(StaticExecutable(plan, models, catch, [bucket]), requests)
    graph, tensors = caught[min(PROBED_ROUND, len(caught) - 1)]
    probe = JudgedLogits(graph.analysis, graph.item, graph.models, graph.sampling)
    folder = home / f"logits-{graph.sampling.word}-{bucket.word}"
    if not folder.is_dir():
        with staged(folder) as staging:
            round_backend(backend).write(probe, tensors, staging)
    with torch.inference_mode():
        expected = probe(*(tensor.clone() for tensor in tensors))
        output = round_backend(backend).load(folder, models)(*tensors)
    distance = torch.where(output == expected, 0.0, (output - expected).abs())  # both infinite
    difference, largest = distance.max().item(), expected[expected.isfinite()].abs().max().item()
    return {"absolute": difference, "relative": difference / largest}
