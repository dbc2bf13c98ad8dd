"""`specplan profile device`: what ops and forwards take on this machine, through the backend.

Real rounds of probe plans run on real text, and the backend tells the seconds of every op. The
grid of (batch, context) is passed over several times, so that the passes of each cell are apart in
time, and within a cell the probes take turns: a busy moment of the machine falls on all alike. What
all rows of a pass have in common against the other passes shows how the whole machine drifts. The
table is saved after each cell of each pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from pathlib import Path

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import FirstLayers, SmallCache
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import (
    SCHEMA_VERSION,
    MeasuredTable,
    Provenance,
)
from specplan.ir.capabilities import refusals
from specplan.measure.device.cliffs import Cliff, find_cliffs
from specplan.measure.device.compiled import time_compiled
from specplan.measure.device.overlap import lane_overlap, runs_at_once
from specplan.measure.device.probes import (
    Probe,
    budget_probes,
    chain_probes,
    exit_probes,
    probe_of_width,
    probes,
    rehearsal_probes,
    skip_probes,
    source_probes,
)
from specplan.measure.device.visits import Samples, dtype_name, gathered, rows_of, visit
from specplan.measure.machine import hardware_name, memory_bytes, versions
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import Workbench
from specplan.planner import (
    ProblemFacts,
    leaves_blocks_out,
    possible_drafters,
)
from specplan.runtime.executable import Executable

PASSES = 4
"""Passes over the grid; the spread of a row's own centre is read from their differences."""
MOST_REFINED = 8
"""Rows measured at most between anchors that show a cliff."""
Cell = tuple[int, int]


@dataclass
class _Run:
    """A run of the profiler, from where an earlier one stopped."""

    bench: Workbench
    table: MeasuredTable
    path: Path
    progress: Progress
    total: int
    grid: Mapping[Cell, Sequence[Executable]]
    done: int = 0
    warm: set[Cell] = field(default_factory=set)

    def cell(self, cell: Cell, number: int) -> None:
        """One pass over one cell."""
        visits = []
        for executable in self.grid[cell]:
            self.progress(f"seconds per op, batch {cell[0]}", self.done, self.total)
            if cell not in self.warm:  # the first visit warms caches and allocators
                visit(self.bench, executable, *cell, seed=0)
            visits.append(visit(self.bench, executable, *cell, seed=number + 1))
            self.done += 1
        self.warm.add(cell)
        for row in rows_of(self.bench, gathered(visits), *cell):
            self.table.join(row)
        self.table.save(self.path)


def measure_device(
    bench: Workbench,
    facts: ProblemFacts,
    *,
    progress: Progress = silent,
    passes: int = PASSES,
    batches: Sequence[int] = (),
    contexts: Sequence[int] = (),
    compilers: Sequence[str] = (),
) -> MeasuredDevice:
    """Measure what the problem's candidates need and is not measured yet.

    Args:
        bench: the problem's models.
        facts: batch sizes and lengths; its device is not read.
        progress: told of every visit to a probe.
        passes: over the grid, at least; more than an earlier run made go on with that one's.
        batches: batch sizes to measure at beside the problem's.
        contexts: contexts in tokens to measure at beside the problem's.
        compilers: backends whose compiled rounds are timed beside the interpreter's.

    Returns:
        The device; its table, with the fitted form and what lanes that run at once save, is stored
        under the problem's `profiles`.

    Raises:
        MissingCapabilityError: one of `compilers` cannot run here, or does not compile a round.
    """
    every = _every_probe(bench, facts)
    whole = cells(facts, batches, contexts)
    short = budget_cells(facts, whole)
    table, path = _table(bench, every, short)
    todo = [
        (number, cell)
        for number in range(passes)
        for cell in (*whole, *short)
        if _passes_of(table, bench, cell) <= number
    ]
    if todo:
        run = _start(bench, table, path, progress, todo, every, short)
        for number, cell in todo:
            run.cell(cell, number)
        table.save(path)
    _refine(bench, facts, table, path, passes, progress)
    beside = [probe.plan for probe in every if runs_at_once(bench, probe.plan)]
    if beside and table.lane_overlap is None:
        table.lane_overlap = lane_overlap(bench, facts, beside[-1], table, whole[0])
        table.save(path)
    progress("seconds per op", 1, 1)
    time_compiled(bench, facts, table, path, compilers, whole, progress)
    return MeasuredDevice(table)


def cells(
    facts: ProblemFacts, batches: Sequence[int] = (), contexts: Sequence[int] = ()
) -> list[Cell]:
    """(batch, context in tokens) to measure at: every batch, shortest and longest text."""
    shortest = min(request.prompt_tokens for request in facts.requests)
    ends = {max(shortest, 1), max(facts.longest_text - 1, 1)}
    return list(product(sorted({*facts.batch_sizes, *batches}), sorted({*ends, *contexts})))


def budget_cells(facts: ProblemFacts, whole: Sequence[Cell]) -> list[Cell]:
    """Where chains alone are measured: as long as the caches of drafters that keep few tokens.

    Only below the contexts of the whole cells: between two of them, times of few tokens would come
    between those of trees, and their own are told by both.
    """
    shortest = min(context for _, context in whole)
    kept = [budget for budget in budgets_of(facts) if budget < shortest]
    return list(product(sorted({batch for batch, _ in whole}), kept))


def exits_of(facts: ProblemFacts) -> tuple[int, ...]:
    """Layers after which the problem's methods may leave the target to draft."""
    every = (one for one in possible_drafters(facts) if isinstance(one, FirstLayers))
    return tuple(one.layers for one in every if one.model == "target")


def budgets_of(facts: ProblemFacts) -> tuple[int, ...]:
    """Tokens that drafters keep in their caches, where some keep few."""
    return tuple(sorted({drafter.budget for drafter in _small_caches(facts)}))


def _small_caches(facts: ProblemFacts) -> list[SmallCache]:
    """Drafters that keep few tokens in their caches, the fewest first."""
    every = (one for one in possible_drafters(facts) if isinstance(one, SmallCache))
    return sorted(every, key=lambda one: one.budget)


def _every_probe(bench: Workbench, facts: ProblemFacts) -> list[Probe]:
    """Those that the backend runs."""
    exits = exits_of(facts)
    greedy, target = bench.problem.workload.greedy, bench.models["target"]
    every = [*probes(bench.drafts, greedy, target.vocab_size)]
    every += exit_probes(exits, target.num_layers, greedy)
    sources = [DRAFT_SOURCES[word] for word in bench.problem.sources if word in DRAFT_SOURCES]
    every += source_probes(sources, bench.problem.datastore, greedy)
    if leaves_blocks_out(bench.problem):
        every += skip_probes(target.num_layers, greedy)
    every += rehearsal_probes(facts)
    for retrieved in (False, True):
        parts = [one for one in _small_caches(facts) if one.retrieved == retrieved]
        every += budget_probes(parts, greedy)
    return [probe for probe in every if not refusals(probe.plan, bench.backend.capabilities)]


def _start(
    bench: Workbench,
    table: MeasuredTable,
    path: Path,
    progress: Progress,
    todo: Sequence[tuple[int, Cell]],
    every: Sequence[Probe],
    short: Sequence[Cell],
) -> _Run:
    compiled = {probe: bench.compile(probe.plan) for probe in every}
    chains = {probe.name for probe in chain_probes(bench.drafts, bench.problem.workload.greedy)}
    few = [executable for probe, executable in compiled.items() if probe.name in chains]
    grid = {cell: few if cell in short else list(compiled.values()) for _, cell in todo}
    total = sum(len(grid[cell]) for _, cell in todo)
    return _Run(bench, table, path, progress, total, grid)


def machine_of(bench: Workbench) -> Provenance:
    """What measures: this machine, and the software that runs the problem's plans."""
    import torch

    device = bench.models["target"].device
    return Provenance(
        hardware=hardware_name(device),
        backend=bench.runs_by,
        threads=torch.get_num_threads(),
        date=date.today().isoformat(),
        memory_bytes=memory_bytes(device),
        versions=versions(),
    )


def _table(
    bench: Workbench, every: Sequence[Probe], short: Sequence[Cell]
) -> tuple[MeasuredTable, Path]:
    """The table of this machine as far as it is filled, and where it is kept."""
    provenance = machine_of(bench)
    workload = bench.problem.workload
    sampling = "greedy" if workload.greedy else [workload.top_k > 0, workload.top_p < 1]
    about = (provenance.hardware, provenance.threads, provenance.versions, sampling)
    probed = [probe.name for probe in every]
    probed += [f"chains alone at {cell}" for cell in short]  # elsewhere they may not be enough
    name = bench.fingerprint(SCHEMA_VERSION, *about, probed)
    path = bench.problem.profiles / "device" / f"{name}.json"
    if path.is_file():
        return MeasuredTable.load(path), path
    return MeasuredTable("this machine", provenance), path


def _passes_of(table: MeasuredTable, bench: Workbench, cell: Cell) -> int:
    """Passes over a cell that the table holds: those of the target's single token."""
    batch, context = cell
    model = bench.models["target"].digest
    about = ("forward", model, dtype_name(bench, "target"), batch, 1, context, None, True, ())
    row = table.rows.get(about)
    return 0 if row is None else len(row.passes)


def _refine(
    bench: Workbench,
    facts: ProblemFacts,
    table: MeasuredTable,
    path: Path,
    passes: int,
    progress: Progress,
) -> None:
    """Fit the form; measure in the middle of its cliffs, as often as is allowed; fit again."""
    if not table.fits:
        _fit(facts, table, path)
    while table.refined < MOST_REFINED:
        found = find_cliffs(table, facts.shapes)[: MOST_REFINED - table.refined]
        if not found:
            return
        for cliff in found:
            progress("cliffs", table.refined, MOST_REFINED)
            _measure_between(bench, table, cliff, passes)
            table.refined += 1
            table.save(path)
        _fit(facts, table, path)


def _fit(facts: ProblemFacts, table: MeasuredTable, path: Path) -> None:
    for shape in facts.shapes.values():
        table.fit(shape)
    table.save(path)


def _measure_between(bench: Workbench, table: MeasuredTable, cliff: Cliff, passes: int) -> None:
    """The width in the middle of a cliff, in as many passes as the others."""
    probe = probe_of_width(cliff.role, cliff.middle, bench.problem.workload.greedy)
    executable, cell = bench.compile(probe.plan), (cliff.batch, cliff.context)
    visit(bench, executable, *cell, seed=0)
    for number in range(passes):
        one = visit(bench, executable, *cell, seed=number + 1)
        key = ("forward", cliff.role, cliff.middle)
        wanted: Samples = {key: one.samples[key]} if key in one.samples else {}
        for row in rows_of(bench, wanted, *cell):
            table.join(row)
