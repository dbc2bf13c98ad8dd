"""What lanes that run at once save, measured and kept with the device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.eager.lanes import room_for  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.devices.measured.table import MeasuredTable  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.ir.ops import Repeat  # noqa: E402
from specplan.ir.plan import Plan, walk  # noqa: E402
from specplan.measure.device import overlap  # noqa: E402
from specplan.measure.device.coverage import profiling_probes  # noqa: E402
from specplan.measure.device.overlap import lane_overlap, runs_at_once  # noqa: E402
from specplan.measure.device.profile import machine_of  # noqa: E402
from specplan.measure.device.time_probe import rows_of, time_probe  # noqa: E402
from specplan.measure.workbench import Workbench  # noqa: E402
from specplan.planner import ProblemFacts, gather_facts, load_problem  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
CPU = torch.device("cpu")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lanes_beside(folder: Path) -> tuple[Workbench, ProblemFacts, Plan]:
    """A small problem, and a plan of two lanes that it times."""
    path = write_problem(folder, prompts=2, output_tokens=8)
    path.write_text(
        path.read_text().replace('"schema_version"', '"methods": ["pearl"], "schema_version"')
    )
    bench = Workbench(load_problem(path))
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    plan = next(probe.plan for probe in profiling_probes(facts))
    return bench, facts, plan


def test_lanes_have_room_where_each_has_cores_for_its_threads() -> None:
    assert room_for(CORES, CPU) and not room_for(CORES + 1, CPU)
    torch.set_num_threads(2)
    try:
        assert not room_for(CORES, CPU)
        assert room_for(CORES // 2, CPU)
        assert not room_for(1, torch.device("meta"))
    finally:
        torch.set_num_threads(1)


def test_the_overlap_is_a_part_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, facts, plan = lanes_beside(tmp_path)
    assert runs_at_once(bench, plan) == (CORES > 1)
    table, cell = MeasuredTable("here", machine_of(bench)), (1, 40)
    for row in rows_of(bench, time_probe(bench, bench.compile(plan), *cell, seed=0).samples, *cell):
        table.join(row)
    monkeypatch.setattr(overlap, "TURNS", 1)
    assert 0.0 <= lane_overlap(bench, facts, plan, table, cell) <= 1.0
    for stored in (0.0, 0.4):
        table.lane_overlap = stored
        table.save(tmp_path / "device.json")
        device = load_device(tmp_path / "device.json")
        assert device.lane_overlap == stored
    text = (tmp_path / "device.json").read_text()
    (tmp_path / "device.json").write_text(
        text.replace('"lane_overlap": 0.4', '"lane_overlap": 1.4')
    )
    with pytest.raises(UsageError, match="lane_overlap"):
        load_device(tmp_path / "device.json")


def test_the_shorter_lane_is_the_sum_of_its_passes(tmp_path: Path) -> None:
    """Passes of 1 ms, one and those of a loop, beside one of 10 ms; all else takes no time."""
    bench, facts, plan = lanes_beside(tmp_path)
    seen = time_probe(bench, bench.compile(plan), 1, 40, seed=0).samples
    seconds = {"draft": 1e-3, "target": 10e-3}
    given = {
        key: [seconds.get(key[1] or "", 0.0) if key[0] == "forward" else 0.0] * 4 for key in seen
    }
    table = MeasuredTable("here", machine_of(bench))
    for row in rows_of(bench, given, 1, 40):
        table.join(row)
    (drafted,) = [op.count for op in walk(plan.rounds[0].ops) if isinstance(op, Repeat)]
    shorter = overlap._shorter_lanes(facts, plan, table, (1, 40))
    assert shorter == pytest.approx((1 + drafted) * 1e-3, rel=1e-6) and shorter < 10e-3
