"""A measured device prices what was measured, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.device import load_device  # noqa: E402
from specplan.cost_models.measured_table import MeasuredTable  # noqa: E402
from specplan.measure import device as device_module  # noqa: E402
from specplan.measure.device import cells, measure_device  # noqa: E402
from specplan.measure.workbench import Workbench  # noqa: E402
from specplan.planner import gather_facts, load_problem  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(params=[0.0, 0.7], ids=["greedy", "sampled"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Workbench:
    path = write_problem(tmp_path, batch_sizes=[1, 3], temperature=request.param)
    return Workbench(load_problem(path))


def test_every_width_is_measured_and_priced(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    told: list[str] = []
    device = measure_device(bench, facts, progress=lambda what, *_: told.append(what), sweeps=1)
    assert told
    for role in ("target", "draft"):
        for batch, context in cells(facts):
            for tokens in (1, 2, 3, 9, 17):
                seconds = device.forward_seconds(facts.shape(role), batch, tokens, context)
                assert 0 < seconds.low <= seconds.median <= seconds.high < 1.0
                assert not seconds.extrapolated
    rule = "accept:greedy" if facts.greedy else "accept:token"
    assert device.op_seconds(rule, 3, 5).median > 0
    assert device.op_seconds("lookup", 1, 8).median > 0
    assert device.round_seconds(3).median >= 0
    assert device.prefill_seconds(facts.target, 1, 40).median > 0

    stored = sorted((bench.problem.profiles / "device").glob("*.json"))
    assert len(stored) == 1
    assert MeasuredTable.load(stored[0]).rows == device.table.rows

    def never(*_: object) -> None:
        raise AssertionError("nothing was left to measure")

    monkeypatch.setattr(device_module, "_visit", never)
    assert measure_device(bench, facts, sweeps=1).table.rows == device.table.rows


def test_a_stopped_run_keeps_finished_cells(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    visited: list[tuple[int, int]] = []
    real = device_module._visit

    def stopping(one, probe, executable, batch, context, seed):  # type: ignore[no-untyped-def]
        if (batch, context) not in visited:
            visited.append((batch, context))
        if len(visited) == 3:
            raise KeyboardInterrupt
        return real(one, probe, executable, batch, context, seed)

    monkeypatch.setattr(device_module, "_visit", stopping)
    with pytest.raises(KeyboardInterrupt):
        measure_device(bench, facts, sweeps=1)
    first_cells = visited[:2]
    visited.clear()
    monkeypatch.setattr(
        device_module,
        "_visit",
        lambda one, probe, executable, batch, context, seed: (
            visited.append((batch, context)) or real(one, probe, executable, batch, context, seed)
        ),
    )
    measure_device(bench, facts, sweeps=1)
    assert not set(first_cells) & set(visited)
    assert set(first_cells) | set(visited) == set(cells(facts))
