"""`specplan profile device`: what ops and forwards take on this machine, through the backend.

Real rounds of probe plans run on real text, and the backend tells the seconds of every op. Probes
of one (batch, context) are visited in turn, several times over, so that a busy moment of the
machine falls on all of them alike. The table is saved after each (batch, context).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from specplan.cost_models.measured import MeasuredDevice
from specplan.cost_models.measured_table import (
    ForwardRow,
    MeasuredTable,
    OpRow,
    PrefillRow,
    Provenance,
    RoundRow,
    Row,
)
from specplan.measure.machine import hardware_name, memory_bytes, versions
from specplan.measure.probes import Probe, probes
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import ProblemFacts
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request

SWEEPS = 4
EMITTED = 24
"""Tokens emitted per visit and request."""
Samples = dict[tuple[str, str | None, int], list[float]]


def measure_device(
    bench: Workbench, facts: ProblemFacts, *, progress: Progress = silent, sweeps: int = SWEEPS
) -> MeasuredDevice:
    """Measure what the problem's candidates need and is not measured yet.

    Args:
        bench: the problem's models.
        facts: batch sizes and lengths; its device is not read.
        progress: told of every visit to a probe.
        sweeps: visits to each probe per (batch, context).

    Returns:
        The device; its table is stored under the problem's `profiles` folder.
    """
    table, path = _table(bench)
    drafts = tuple(name for name in bench.models if name != "target")
    todo = [cell for cell in cells(facts) if _lacks(table, bench, *cell)]
    every = tuple(probes(drafts, facts.greedy, bench.models["target"].vocab_size))
    compiled = [(probe, bench.compile(probe.plan)) for probe in every] if todo else []
    for number, (batch, context) in enumerate(todo):
        samples: Samples = defaultdict(list)
        for sweep, (place, (probe, executable)) in product(range(sweeps + 1), enumerate(compiled)):
            done = (number * (sweeps + 1) + sweep) * len(compiled) + place
            progress("seconds per op", done, len(todo) * (sweeps + 1) * len(compiled))
            seen = _visit(bench, probe, executable, batch, context, sweep)
            if sweep:  # the first visit warms caches and allocators
                for key, values in seen.items():
                    samples[key] += values
        for row in _rows(bench, samples, batch, context):
            table.add(row)
        table.save(path)
    progress("seconds per op", 1, 1)
    return MeasuredDevice(table)


def cells(facts: ProblemFacts) -> list[tuple[int, int]]:
    """(batch, context in tokens) to measure at: every batch, shortest and longest text."""
    shortest = min(request.prompt_tokens for request in facts.requests)
    contexts = sorted({max(shortest, 1), max(facts.longest_text - 1, 1)})
    return list(product(sorted(set(facts.batch_sizes)), contexts))


def _table(bench: Workbench) -> tuple[MeasuredTable, Path]:
    """The table of this machine as far as it is filled, and where it is kept."""
    import torch

    device = bench.models["target"].device
    provenance = Provenance(
        hardware=hardware_name(device),
        backend=bench.problem.backend,
        threads=torch.get_num_threads(),
        date=date.today().isoformat(),
        memory_bytes=memory_bytes(device),
        versions=versions(),
    )
    workload = bench.problem.workload
    sampling = "greedy" if workload.greedy else [workload.top_k > 0, workload.top_p < 1]
    name = bench.fingerprint(provenance.hardware, provenance.threads, provenance.versions, sampling)
    path = bench.problem.profiles / "device" / f"{name}.json"
    if path.is_file():
        return MeasuredTable.load(path), path
    return MeasuredTable("this machine", provenance), path


def _lacks(table: MeasuredTable, bench: Workbench, batch: int, context: int) -> bool:
    model = bench.models["target"]
    key = ("forward", model.digest, _dtype(bench, "target"), batch, 1, context, None)
    return bool(table.missing([key]))


def _dtype(bench: Workbench, role: str) -> str:
    return str(bench.models[role].dtype).removeprefix("torch.")


def _visit(
    bench: Workbench, probe: Probe, executable: Executable, batch: int, context: int, seed: int
) -> Samples:
    """Run some rounds of a probe on text of `context` tokens; seconds by what took them."""
    samples: Samples = defaultdict(list)
    spent = 0.0

    def observe(
        op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        nonlocal spent
        if op == "prefill":
            samples["prefill", model, width].append(seconds)
            return
        spent += seconds
        if model is None:
            samples["op", op, width].append(seconds)
        else:
            samples["forward", model, width].append(seconds)

    workload = bench.problem.workload
    requests = [
        Request(
            prompt_tokens=tokens,
            max_new_tokens=EMITTED,
            temperature=workload.temperature,
            top_k=workload.top_k,
            top_p=workload.top_p,
            seed=seed,
        )
        for tokens in _texts(bench, batch, context, seed)
    ]
    result = generate(executable, requests, observer=observe)
    glue = max(result.decode_seconds - spent, 0.0) / result.rounds
    samples["round", None, 1].append(glue)
    return samples


def _texts(bench: Workbench, batch: int, context: int, seed: int) -> list[tuple[int, ...]]:
    """Real prompts, repeated or cut to `context` tokens; other ones at every visit."""
    longest = min(model.max_positions for model in bench.models.values()) - EMITTED
    size = max(min(context, longest), 1)
    prompts = bench.prompts(PROFILE)
    chosen = [prompts[(seed * batch + row) % len(prompts)].tokens for row in range(batch)]
    return [(tokens * (size // len(tokens) + 1))[-size:] for tokens in chosen]


def _rows(bench: Workbench, samples: Samples, batch: int, context: int) -> Iterator[Row]:
    """Median (of ops, trimmed mean) and quartiles of each kind of sample."""
    for (kind, what, width), values in samples.items():
        low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        if kind == "op":  # some work only now and then, as a commit that moves: the mean counts
            middle = float(trim_mean(values, 0.1))
            low, high = min(low, middle), max(high, middle)
        time: dict[str, Any] = {
            "seconds": middle,
            "low": low,
            "high": high,
            "runs": len(values),
            "batch": batch,
        }
        if kind == "round":
            yield RoundRow(**time)
        elif kind == "op":
            yield OpRow(op=str(what), width=width, **time)
        else:
            role = str(what)
            model: dict[str, Any] = {
                "model": bench.models[role].digest,
                "dtype": _dtype(bench, role),
            }
            if kind == "prefill":
                yield PrefillRow(tokens=width, **model, **time)
            else:
                yield ForwardRow(tokens=width, context=context, **model, **time)
