"""Seconds of whole compiled rounds, and the interpreter's of their parts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from specplan.backends.registry import round_backend
from specplan.cost_models.devices.measured.compiled_form import part_of
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun, Passes
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.rounds.demands import OpDemand, RoundDemands, round_demands
from specplan.cost_models.rounds.matching import by_outcome, searched_once
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.ir.capabilities import Capabilities, refusals
from specplan.ir.errors import MissingCapabilityError, SpecplanError, foreign_words
from specplan.ir.files import name_of
from specplan.ir.types.matching import outcome_words, outcomes_of
from specplan.measure.device.coverage import head_probes
from specplan.measure.device.probes import Probe, probes
from specplan.measure.device.round_turns import EMITTED, Forms, TimedRound, TurnLog
from specplan.measure.progress import Progress
from specplan.measure.workbench import Workbench
from specplan.planner import ProblemFacts

TURNS = 7
"""Texts that each round runs on."""
TURN_LOG = "turns.json"
NAMED = 3
"""Rounds that an error names for each reason."""


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

    What was compiled, and the turns so far, are in a folder beside the table until then: after an
    end of any kind, the next call goes on from there.

    Args:
        bench: the problem's models, and the interpreter.
        facts: their shapes.
        table: has the interpreter's times of all steps of the rounds.
        path: file of the table.
        backends: that compile rounds.
        cells: (batch, context in tokens) of the problem; the smallest and the largest batch run
            halfway between the shortest and the longest context, with room for the longest.
        progress: called for every round, and for every turn of all of them.

    Raises:
        MissingCapabilityError: one of the backends cannot run here, or does not compile a round;
            all others are timed and saved first.
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
    name: str,
    cells: Sequence[tuple[int, int]],
    progress: Progress,
) -> None:
    backend = round_backend(name)
    backend.check(bench.models, frozen=False)
    batches, contexts = zip(*cells, strict=True)
    context, room = (min(contexts) + max(contexts)) // 2, max(contexts) + EMITTED
    about = context, backend.version
    runs = [one for one in table.compiled.get(name, ()) if (one.context, one.version) == about]
    known = {(run.batch, run.probe) for run in runs}
    ends = sorted({min(batches), max(batches)})
    every = product(ends, _rounds(bench, facts, backend.capabilities))
    todo = [(batch, probe) for batch, probe in every if (batch, probe.name) not in known]
    doing, whole = f"rounds compiled by {name}", len(todo) + TURNS
    home, timed, failures = _work_folder(path, name), list[TimedRound](), dict[str, Exception]()
    for done, (batch, probe) in enumerate(todo):
        progress(doing, done, whole)
        place = home / name_of(repr((batch, probe.name, room, backend.version)))
        try:
            cell = batch, context
            timed.append(TimedRound.compiled(bench, probe, backend, cell, room, place))
        except Exception as error:  # whatever a compiler raises: the others are timed first
            failures[f"{probe.name} at batch {batch}"] = error
    if timed:
        names = [[one.batch, one.probe.name] for one in timed]
        log = TurnLog(home / TURN_LOG, {"about": list(about), "room": room, "rounds": names})
        while len(log) < TURNS:
            progress(doing, len(todo) + len(log), whole)
            log.run(timed)
        for one, (forms, prompts) in zip(timed, log.medians(), strict=True):
            runs += _runs(facts, table, one, forms, prompts, backend.version)
    if runs:
        table.compiled[name] = tuple(runs)
        table.save(path)
    timed.clear()
    shutil.rmtree(home, ignore_errors=True)
    progress(doing, whole, whole)
    if failures:
        raise _refusal(name, failures, len(todo))


def _work_folder(path: Path, backend: str) -> Path:
    """Of what is not in the table yet: compiled rounds and turns."""
    return path.with_name(f"{path.stem}.{backend}")


def _refusal(backend: str, failures: Mapping[str, Exception], tried: int) -> MissingCapabilityError:
    """One error for all rounds that do not compile: which, why, and what to do."""
    by_reason: dict[str, list[str]] = {}
    remedies = []
    for name, error in failures.items():
        reason = foreign_words(error)
        if isinstance(error, SpecplanError):
            reason = f"{error.where}: {error.what}" if error.where else error.what
            remedies.append(error.remedy)
        by_reason.setdefault(reason, []).append(name)
    reasons = "; ".join(f"{_few(names)}: {reason}" for reason, names in by_reason.items())
    remedy = next(filter(None, remedies), "Mend that, or name another backend.")
    return MissingCapabilityError(
        f"it does not compile {len(failures)} of {tried} rounds ({reasons})",
        where=f"backend {backend}",
        remedy=f"{remedy} The next measurement repeats only these rounds.",
    )


def _few(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _runs(
    facts: ProblemFacts,
    table: MeasuredTable,
    one: TimedRound,
    forms: Forms,
    prompts: float,
    version: str,
) -> Iterator[CompiledRun]:
    """The forms of a round as they ran, and the interpreter's seconds of their parts."""
    text, plan = one.context + EMITTED / 2, one.probe.plan
    pricer = RoundPricer(MeasuredDevice(table), facts.shapes, one.batch, text)
    share = prompts / _prompt_seconds(pricer, one.probe, facts.drafters, one.context)
    (item,) = plan.rounds
    asked: dict[int | None, RoundDemands] = {None: round_demands(plan, item)}
    asked |= zip(outcomes_of(item), by_outcome(plan, item), strict=False)  # some have no forms
    for outcome, demands in asked.items():
        form = outcome_words(outcome)
        if form in forms:
            about = one.probe.name, form, one.batch, one.context, version
            yield CompiledRun(*about, forms[form], share, *_parts(pricer, searched_once(demands)))


def _rounds(bench: Workbench, facts: ProblemFacts, able: Capabilities) -> Iterator[Probe]:
    """A few probes, with passes of each model over few and over many tokens."""
    models = [name for name in bench.drafts if name not in facts.drafters]
    wanted = {"autoregressive", "lookup 2", "lookup 10", "lookups by match"}
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


def _parts(
    pricer: RoundPricer, demands: RoundDemands
) -> tuple[tuple[Passes, ...], float, float, float]:
    """Passes of a round by model, the interpreter's seconds of all else, of moves and of sources.

    A compiled pass has room for all tokens that may be pending, and takes the time of all.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    spent = {"others": pricer.glue().median, "moves": 0.0, "sources": 0.0}
    for step in demands.steps:
        if isinstance(step, OpDemand):
            spent[part_of(step.name)] += pricer.op(step).median
            continue
        shape = pricer.shape(step.model)
        single = pricer.device.forward_seconds(shape, 1, 1, pricer.context, step.rows).median
        tokens = int(pricer.batch) * step.width
        counts[shape.digest, shape.dtype, tokens, float(single)] += 1
    passes = (
        Passes(model, dtype, count, tokens, single)
        for (model, dtype, tokens, single), count in counts.items()
    )
    return tuple(passes), float(sum(spent.values())), float(spent["moves"]), float(spent["sources"])
