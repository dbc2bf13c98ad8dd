"""Layers on a disk are timed by reading them, and passes without reading."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.measure.device.links import measure_reads
from specplan.measure.device.profile import machine_of
from specplan.measure.workbench import Workbench
from specplan.planner.problem.loading import problem_from_dict
from tests.backends.pairs import save_pair


def test_a_layer_of_the_problem_is_read_and_its_time_stored(tmp_path: Path) -> None:
    save_pair(tmp_path)
    placed = {"path": "target", "placement": {"link": "disk"}}
    problem = problem_from_dict(
        {
            "schema_version": 1,
            "models": {"target": placed},
            "device": "cpu-generic",
            "workload": {"batch_sizes": [1], "prompt_tokens": 8, "output_tokens": 8},
        },
        tmp_path,
    )
    bench = Workbench(problem)
    table = MeasuredTable("here", machine_of(bench))
    assert measure_reads(bench, table, passes=2)
    assert not measure_reads(bench, table, passes=2), "it is known by then"
    table.save(tmp_path / "table.json")
    device = MeasuredDevice(MeasuredTable.load(tmp_path / "table.json"))
    shape = problem.models.target.shape("target")
    assert shape.placement is not None
    (size,) = {*shape.placement.layer_bytes}
    read = device.read_seconds("disk", size)
    assert 0.0 < read.low <= read.median <= read.high
    assert device.read_seconds("disk", 2 * size).median == pytest.approx(2 * read.median)
