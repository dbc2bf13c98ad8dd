"""Seconds of whole compiled rounds over those of the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from specplan.backends.registry import round_backend
from specplan.backends.static.buckets import Bucket
from specplan.cost_models.devices.measured.compiled_form import MOVES
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun, Passes
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.ir.capabilities import refusals
from specplan.ir.errors import MissingCapabilityError, SpecplanError, foreign_words
from specplan.measure.bench.interleave import seconds_in_turns
from specplan.measure.device import time_probe as times
from specplan.measure.device.coverage import head_probes
from specplan.measure.device.probes import Probe, probes
from specplan.measure.progress import Progress
from specplan.measure.workbench import Workbench
from specplan.planner import ProblemFacts
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate

TURNS = 7
"""Texts that each round runs on, compiled and interpreted."""
LAG = 0.5
"""Share of rounds before which the last token of a draft has not run yet."""


def check_compilers(bench: Workbench, backends: Sequence[str]) -> None:
    """Refuse the only backend that is to compile rounds before anything is measured.

    Raises:
        MissingCapabilityError: it cannot run here, or does not run these models.
    """
    if len(backends) == 1:
        round_backend(backends[0]).check(bench.models, frozen=False)


def time_compiled(
    bench: Workbench,
    facts: ProblemFacts,
    table: MeasuredTable,
    path: Path,
    backends: Sequence[str],
    cells: Sequence[tuple[int, int]],
    progress: Progress,
) -> None:
    """Add the compiled rounds that a table lacks; the table is saved after each.

    Args:
        bench: the problem's models, and the interpreter.
        facts: their shapes.
        table: has the interpreter's times of all steps of the rounds.
        path: file of the table.
        backends: that compile rounds.
        cells: (batch, context in tokens) of the problem; the smallest and the largest batch run
            halfway between the shortest and the longest context, with room for the longest.
        progress: called for every round.

    Raises:
        MissingCapabilityError: one of the backends cannot run here, or does not compile a round;
            the others are timed first.
    """
    errors = []
    for backend in backends:
        try:
            _time_backend(bench, facts, table, path, backend, cells, progress)
        except MissingCapabilityError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _time_backend(
    bench: Workbench,
    facts: ProblemFacts,
    table: MeasuredTable,
    path: Path,
    backend: str,
    cells: Sequence[tuple[int, int]],
    progress: Progress,
) -> None:
    missing = round_backend(backend).available()
    if missing is not None:
        raise MissingCapabilityError(missing, where=f"backend {backend}")
    batches, contexts = zip(*cells, strict=True)
    context, room = (min(contexts) + max(contexts)) // 2, max(contexts) + times.EMITTED
    todo = list(product(sorted({min(batches), max(batches)}), _rounds(bench, facts, backend)))
    about = context, round_backend(backend).version
    runs = [one for one in table.compiled.get(backend, ()) if (one.context, one.version) == about]
    known = {(run.batch, run.probe) for run in runs}
    for done, (batch, probe) in enumerate(todo):
        progress(f"rounds compiled by {backend}", done, len(todo))
        if (batch, probe.name) not in known:
            ratio, prompts = _ratios(bench, probe, backend, (batch, context), room)
            passes, others, moves = _parts(facts, table, probe, (batch, context))
            run = CompiledRun(probe.name, batch, *about, ratio, passes, others, moves, prompts)
            runs.append(run)
            table.compiled[backend] = tuple(runs)
            table.save(path)
    progress(f"rounds compiled by {backend}", len(todo), len(todo))


def _rounds(bench: Workbench, facts: ProblemFacts, backend: str) -> Iterator[Probe]:
    """A few probes, with passes of each model over few and over many tokens."""
    able = round_backend(backend).capabilities
    models = [name for name in bench.drafts if name not in facts.drafters]
    wanted = {"autoregressive", "lookup 2", "lookup 10"}
    for draft in models:
        wanted |= {f"chain 1 by {draft}", f"chain 7 by {draft}", f"bush 8 by {draft}"}
    greedy, size = bench.problem.workload.greedy, bench.models["target"].vocab_size
    for probe in probes(models, greedy, size):
        if probe.name in wanted and not refusals(probe.plan, able):
            yield probe
    by_head: dict[str, list[Probe]] = {name: [] for name in facts.drafters}
    for head, probe in head_probes(facts):
        if not refusals(probe.plan, able):
            by_head[head].append(probe)
    for every in by_head.values():
        yield from dict.fromkeys((*every[:2], *every[-1:]))


def _ratios(
    bench: Workbench, probe: Probe, backend: str, cell: tuple[int, int], room: int
) -> tuple[float, float]:
    """Seconds of a compiled round over those of the interpreted one, and the same of prompts.

    Medians of turns; of rounds behind the first, in which a head reads the prompt.
    """
    plain = bench.compile(probe.plan)
    compiled: Executable = round_backend(backend).compile(
        probe.plan, bench.models, buckets=[Bucket(cell[0], room)]
    )

    prompts: dict[str, list[float]] = {"plain": [], "compiled": []}

    def timer(name: str, executable: Executable) -> Callable[[int], float]:
        def seconds(turn: int) -> float:
            requests = times.requests_of(bench, *cell, seed=turn + 1)
            generation = generate(executable, requests)
            if turn >= 0:
                prompts[name].append(generation.prefill_seconds)
            return generation.seconds_per_later_round

        return seconds

    runs = {"plain": timer("plain", plain), "compiled": timer("compiled", compiled)}
    runs["plain"](-1)
    try:
        runs["compiled"](-1)
    except SpecplanError:
        raise
    except Exception as error:  # whatever a compiler raises
        raise MissingCapabilityError(
            f"it does not compile the round of {probe.name}: {foreign_words(error)}",
            where=f"backend {backend}",
            remedy="Name another backend.",
        ) from error
    seconds = seconds_in_turns(runs, TURNS)
    return _share(seconds), _share(prompts)


def _share(seconds: Mapping[str, Sequence[float]]) -> float:
    pairs = zip(seconds["compiled"], seconds["plain"], strict=True)
    return median(of_compiled / of_plain for of_compiled, of_plain in pairs)


def _parts(
    facts: ProblemFacts, table: MeasuredTable, probe: Probe, cell: tuple[int, int]
) -> tuple[tuple[Passes, ...], float, float]:
    """The interpreter's seconds of a round: of its passes by model, of all else, and moves of that.

    A compiled pass has room for all tokens that may be pending, and takes the time of all.
    """
    batch, context = cell
    device, text = MeasuredDevice(table), context + times.EMITTED / 2
    pricer = RoundPricer(device, facts.shapes, batch, text)
    counts: Counter[tuple[Any, ...]] = Counter()
    others, moves = pricer.glue().median, 0.0
    for step in round_demands(probe.plan, probe.plan.rounds[0]).steps:
        if isinstance(step, OpDemand):
            spent = pricer.op(step).median
            others += spent
            moves += spent if step.name == MOVES else 0.0
            continue
        shape = pricer.shape(step.model)
        single = device.forward_seconds(shape, 1, 1, text, step.rows).median
        spent = pricer.forward(step, LAG).median
        counts[shape.digest, shape.dtype, batch * step.width, spent, single] += 1
    passes = (
        Passes(model, dtype, count, tokens, spent, single)
        for (model, dtype, tokens, spent, single), count in counts.items()
    )
    return tuple(passes), others, moves
