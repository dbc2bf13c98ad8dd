"""Seconds of whole compiled rounds, and the interpreter's of their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Self

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
"""Texts that each round runs on."""


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
    """Add the compiled rounds that a table lacks; it is saved after those of each backend.

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
    version, doing = round_backend(backend).version, f"rounds compiled by {backend}"
    runs = [
        one
        for one in table.compiled.get(backend, ())
        if (one.context, one.version) == (context, version)
    ]
    known = {(run.batch, run.probe) for run in runs}
    todo = [
        (batch, probe)
        for batch, probe in product(
            sorted({min(batches), max(batches)}), _rounds(bench, facts, backend)
        )
        if (batch, probe.name) not in known
    ]
    timed = list[_TimedRound]()
    for done, (batch, probe) in enumerate(todo):
        progress(doing, done, len(todo))
        timed.append(_TimedRound.compiled(bench, probe, backend, (batch, context), room))
    # All in turns: a machine that is slower for a while is so for each of them.
    every = seconds_in_turns(dict(enumerate(timed)), TURNS)
    for one, seconds in zip(timed, every.values(), strict=True):
        text = context + times.EMITTED / 2
        pricer = RoundPricer(MeasuredDevice(table), facts.shapes, one.batch, text)
        share = median(one.prompts) / _prompt_seconds(pricer, one.probe, facts.drafters, context)
        about = one.probe.name, one.batch, context, version
        runs.append(CompiledRun(*about, median(seconds), share, *_parts(pricer, one.probe)))
    table.compiled[backend] = tuple(runs)
    table.save(path)
    progress(doing, len(todo), len(todo))


def _rounds(bench: Workbench, facts: ProblemFacts, backend: str) -> Iterator[Probe]:
    """A few probes, with passes of each model over few and over many tokens."""
    able = round_backend(backend).capabilities
    models = [name for name in bench.drafts if name not in facts.drafters]
    wanted = {"autoregressive", "lookup 2", "lookup 5", "lookup 10"}
    for draft in models:
        wanted |= {f"chain {length} by {draft}" for length in (1, 3, 7)} | {f"bush 8 by {draft}"}
    greedy, size = bench.problem.workload.greedy, bench.models["target"].vocab_size
    for probe in probes(models, greedy, size):
        if probe.name in wanted and not refusals(probe.plan, able):
            yield probe
    by_head: dict[str, list[Probe]] = {name: [] for name in facts.drafters}
    for head, probe in head_probes(facts):
        if not refusals(probe.plan, able):
            by_head[head].append(probe)
    for every in by_head.values():
        yield from dict.fromkeys((*every[:3], *every[-1:]))


@dataclass
class _TimedRound:
    """A compiled round, called with the number of a turn, each on another text.

    Attributes:
        prompts: seconds until its prompts were read, by turn.
    """

    bench: Workbench
    probe: Probe
    batch: int
    context: int
    executable: Executable
    prompts: list[float] = field(default_factory=list)

    @classmethod
    def compiled(
        cls, bench: Workbench, probe: Probe, backend: str, cell: tuple[int, int], room: int
    ) -> Self:
        """Compile a round for a batch and context, with room for longer texts, and run it once.

        Raises:
            MissingCapabilityError: the backend does not compile it.
        """
        bucket = Bucket(cell[0], room)
        executable = round_backend(backend).compile(probe.plan, bench.models, buckets=[bucket])
        made = cls(bench, probe, *cell, executable)
        try:
            made(-1)
        except SpecplanError:
            raise
        except Exception as error:  # whatever a compiler raises
            raise MissingCapabilityError(
                f"it does not compile the round of {probe.name}: {foreign_words(error)}",
                where=f"backend {backend}",
                remedy="Name another backend.",
            ) from error
        made.prompts.clear()
        return made

    def __call__(self, turn: int) -> float:
        """Seconds of a round behind the first, in which a head reads the prompt."""
        requests = times.requests_of(self.bench, self.batch, self.context, seed=turn + 1)
        ran = generate(self.executable, requests)
        self.prompts.append(ran.prefill_seconds)
        return ran.seconds_per_later_round


def _prompt_seconds(
    pricer: RoundPricer, probe: Probe, heads: Collection[str], context: int
) -> float:
    """Of the interpreter, until models have read their prompts; heads do in the first round."""
    models = [state.model for state in probe.plan.caches if state.model not in heads]
    read = (
        pricer.device.prefill_seconds(pricer.shape(model), pricer.batch, context)
        for model in models
    )
    return sum(float(one.median) for one in read)


def _parts(pricer: RoundPricer, probe: Probe) -> tuple[tuple[Passes, ...], float, float]:
    """Passes of a round by model, and the interpreter's seconds of all else, and of moves.

    A compiled pass has room for all tokens that may be pending, and takes the time of all.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    others, moves = pricer.glue().median, 0.0
    for step in round_demands(probe.plan, probe.plan.rounds[0]).steps:
        if isinstance(step, OpDemand):
            spent = pricer.op(step).median
            others += spent
            moves += spent if step.name == MOVES else 0.0
            continue
        shape = pricer.shape(step.model)
        single = pricer.device.forward_seconds(shape, 1, 1, pricer.context, step.rows).median
        tokens = int(pricer.batch) * step.width
        counts[shape.digest, shape.dtype, tokens, float(single)] += 1
    passes = (
        Passes(model, dtype, count, tokens, single)
        for (model, dtype, tokens, single), count in counts.items()
    )
    return tuple(passes), float(others), float(moves)
