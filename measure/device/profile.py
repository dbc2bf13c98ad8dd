"""`specplan profile device`: seconds of ops and forwards on this machine, through the backend.

Real rounds of probe plans run on real text, and the backend reports the seconds of every op. The
grid of (batch, context) is measured in several passes, so that the measurements of a cell are
spread over time, and within a cell the probes take turns, so that a busy moment of the machine
falls on all of them. A difference that all rows of a pass share is the drift of the whole machine.
The table is saved after each cell of each pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import (
    SCHEMA_VERSION,
    MeasuredTable,
    Provenance,
)
from specplan.measure.device.cliffs import Cliff, find_cliffs
from specplan.measure.device.compiled import check_compilers, time_compiled
from specplan.measure.device.coverage import Cell, budget_cells, cells, every_probe
from specplan.measure.device.links import measure_reads
from specplan.measure.device.overlap import lane_overlap, runs_at_once
from specplan.measure.device.probes import (
    Probe,
    chain_probes,
    probe_of_width,
)
from specplan.measure.device.time_probe import Samples, dtype_name, joined, rows_of, time_probe
from specplan.measure.machine import hardware_name, memory_bytes, versions
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import Workbench
from specplan.planner import (
    ProblemFacts,
)
from specplan.runtime.executable import Executable
from specplan.runtime.models.streamed import without_reads

PASSES = 4
"""Passes over the grid; the spread of a row's own centre is read from their differences."""
MOST_REFINED = 8
"""Rows measured at most between anchors that show a cliff."""


@dataclass
class _Run:
    """A run of the profiler, from where an earlier one stopped.

    Attributes:
        bench: the problem's models.
        table: the rows so far.
        path: its file.
        progress: called for every run of a probe.
        grid: the plans to time in each cell.
        total: runs of probes to do.
        done: runs of probes done.
        warm: cells whose probes have run once.
    """

    bench: Workbench
    table: MeasuredTable
    path: Path
    progress: Progress
    grid: Mapping[Cell, Sequence[Executable]]
    total: int
    done: int = 0
    warm: set[Cell] = field(default_factory=set)

    def cell(self, cell: Cell, number: int) -> None:
        """One pass over one cell."""
        runs = []
        for executable in self.grid[cell]:
            self.progress(f"seconds per op, batch {cell[0]}", self.done, self.total)
            if cell not in self.warm:  # the first run warms caches and allocators
                time_probe(self.bench, executable, *cell, seed=0)
            runs.append(time_probe(self.bench, executable, *cell, seed=number + 1))
            self.done += 1
        self.warm.add(cell)
        for row in rows_of(self.bench, joined(runs), *cell):
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
        progress: called for every run of a probe.
        passes: least passes over the grid, those of earlier runs included.
        batches: batch sizes to measure at besides the problem's.
        contexts: contexts in tokens to measure at besides the problem's.
        compilers: backends whose compiled rounds are timed against the interpreter's.

    Layers that are read in every pass are timed apart from what they compute.

    Returns:
        The device; its table, with the fitted form and the overlap of concurrent lanes, is stored
        under the problem's `profiles`.

    Raises:
        MissingCapabilityError: one of `compilers` cannot run here, or does not compile a round; the
            only one is refused before anything is measured.
    """
    check_compilers(bench, compilers)
    with without_reads(bench.models.values()):
        table, path = _ops_measured(bench, facts, progress, passes, batches, contexts, compilers)
    progress("seconds per op", 1, 1)
    if measure_reads(bench, table, passes):
        table.save(path)
    return MeasuredDevice(table)


def _ops_measured(
    bench: Workbench,
    facts: ProblemFacts,
    progress: Progress,
    passes: int,
    batches: Sequence[int],
    contexts: Sequence[int],
    compilers: Sequence[str],
) -> tuple[MeasuredTable, Path]:
    """The table of ops and its file; arguments as of `measure_device`."""
    every = every_probe(bench, facts)
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
    with_lanes = [probe.plan for probe in every if runs_at_once(bench, probe.plan)]
    if with_lanes and table.lane_overlap is None:
        table.lane_overlap = lane_overlap(bench, facts, with_lanes[-1], table, whole[0])
        table.save(path)
    time_compiled(bench, facts, table, path, compilers, whole, progress)
    return table, path


def _start(
    bench: Workbench,
    table: MeasuredTable,
    path: Path,
    progress: Progress,
    todo: Sequence[tuple[int, Cell]],
    every: Sequence[Probe],
    short: Sequence[Cell],
) -> _Run:
    names = {probe.name for probe in chain_probes(bench.drafts, bench.problem.workload.greedy)}
    compiled = {probe: bench.compile(probe.plan) for probe in every}
    chains = [executable for probe, executable in compiled.items() if probe.name in names]
    grid = {cell: chains if cell in short else list(compiled.values()) for _, cell in todo}
    total = sum(len(grid[cell]) for _, cell in todo)
    return _Run(bench, table, path, progress, grid, total)


def machine_of(bench: Workbench) -> Provenance:
    """Provenance: this machine, and the software that runs the problem's plans."""
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
    """The table of this machine as far as it is filled, and its file."""
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
    """Passes over a cell in the table, counted by the target's pass over a single token."""
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
    """Fit the form, measure in the middle of its cliffs, `MOST_REFINED` rows at most, fit again.

    Heads have no such rows: the probe of a width drafts with a model that reads the text alone.
    """
    if not table.fits:
        _fit(facts, table, path)
    models = {role: one for role, one in facts.shapes.items() if role not in facts.drafters}
    while table.refined < MOST_REFINED:
        cliffs = find_cliffs(table, models)[: MOST_REFINED - table.refined]
        if not cliffs:
            return
        for cliff in cliffs:
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
    """Measure the width in the middle of a cliff, in as many passes as the others."""
    probe = probe_of_width(cliff.role, cliff.middle, bench.problem.workload.greedy)
    executable, cell = bench.compile(probe.plan), (cliff.batch, cliff.context)
    time_probe(bench, executable, *cell, seed=0)
    for number in range(passes):
        samples = time_probe(bench, executable, *cell, seed=number + 1).samples
        key = ("forward", cliff.role, cliff.middle)
        wanted: Samples = {key: samples[key]} if key in samples else {}
        for row in rows_of(bench, wanted, *cell):
            table.join(row)
