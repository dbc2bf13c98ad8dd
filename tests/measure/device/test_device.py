"""A measured device prices what was measured, and goes on where it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.devices.measured.device import MeasuredDevice  # noqa: E402
from specplan.cost_models.devices.measured.rows import ForwardRow  # noqa: E402
from specplan.cost_models.devices.measured.spread import UNKNOWN_DRIFT  # noqa: E402
from specplan.cost_models.devices.measured.table import MeasuredTable  # noqa: E402
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands  # noqa: E402
from specplan.ir.blocks import Skips  # noqa: E402
from specplan.measure.device import profile as device_module  # noqa: E402
from specplan.measure.device import time_probe as times  # noqa: E402
from specplan.measure.device.cliffs import find_cliffs  # noqa: E402
from specplan.measure.device.coverage import budget_cells, budgets_of, cells  # noqa: E402
from specplan.measure.device.probes import EXIT_CHAINS  # noqa: E402
from specplan.measure.device.profile import MOST_REFINED, measure_device  # noqa: E402
from specplan.measure.device.time_probe import ProbeTimes  # noqa: E402
from specplan.measure.workbench import Workbench  # noqa: E402
from specplan.planner import (  # noqa: E402
    ProblemFacts,
    discover_methods,
    gather_facts,
    load_problem,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def short_probes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "EMITTED", 6)
        yield


@pytest.fixture(
    scope="module",
    params=[pytest.param(0.0, marks=pytest.mark.long), 0.7],
    ids=["greedy", "sampled"],
)
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workbench, MeasuredDevice, list[str]]:
    """One pass over the grid of a problem, and what was told meanwhile."""
    folder = tmp_path_factory.mktemp("problem")
    path = write_problem(folder, batch_sizes=[1, 3], temperature=request.param)
    bench, progress = Workbench(load_problem(path)), list[str]()
    device = measure_device(
        bench, facts_of(bench), progress=lambda what, *_: progress.append(what), passes=1
    )
    return bench, device, progress


@pytest.fixture
def batches(tmp_path: Path) -> Workbench:
    """Sampled, one request or three at a time."""
    path = write_problem(tmp_path, batch_sizes=[1, 3], temperature=0.7)
    return Workbench(load_problem(of_chains(path)))


@pytest.fixture
def small(tmp_path: Path) -> Workbench:
    """Greedy, one request at a time."""
    return Workbench(load_problem(of_chains(write_problem(tmp_path))))


def of_chains(problem: Path) -> Path:
    """A problem with one method, so that the grid has few probes."""
    problem.write_text(json.dumps(json.loads(problem.read_text()) | {"methods": ["draft_model"]}))
    return problem


def facts_of(bench: Workbench) -> ProblemFacts:
    return gather_facts(bench.problem, device=load_device("cpu-generic"))


def test_every_width_is_measured_and_priced(
    measured: tuple[Workbench, MeasuredDevice, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, device, progress = measured
    facts = facts_of(bench)
    assert progress
    for role in ("target", "draft"):
        for batch, context in cells(facts):
            for tokens in (1, 2, 3, 9, 17):
                seconds = device.forward_seconds(facts.shape(role), batch, tokens, context)
                assert 0 < seconds.low <= seconds.median <= seconds.high
                assert not seconds.extrapolated
        fit = device.table.fits[facts.shape(role).digest, facts.shape(role).dtype]
        assert math.isfinite(fit.mean_error) and fit.rows > 20
        assert device.forward_seconds(facts.shape(role), 3, 200, 60).extrapolated
    rule = "accept:greedy" if facts.greedy else "accept:token"
    assert device.op_seconds(rule, 3, 5).median > 0
    assert device.op_seconds("lookup", 1, 8).median > 0
    for choice in ("pick:best", "prune", "grow:best"):
        seconds = device.op_seconds(choice, 3, 16)
        assert seconds.median > 0 and not seconds.extrapolated
    assert device.round_seconds(3).median >= 0
    assert device.prefill_seconds(facts.target, 1, 40).median > 0
    assert device.shared_error > 0

    stored = sorted((bench.problem.profiles / "device").glob("*.json"))
    assert len(stored) == 1
    assert MeasuredTable.load(stored[0]).rows == device.table.rows

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing was left to measure")

    device.table.refined = MOST_REFINED
    device.table.save(stored[0])
    monkeypatch.setattr(device_module, "time_probe", never)
    assert measure_device(bench, facts, passes=1).table.rows == device.table.rows


def test_few_cached_tokens_are_timed_below_all_other_contexts(tmp_path: Path) -> None:
    """Between others, rows of chains alone would stand beside trees that have none there."""
    path = write_problem(tmp_path, batch_sizes=[1, 3], prompt_tokens=100)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"methods": ["sparse_cache"]}))
    bench = Workbench(load_problem(path))
    facts = facts_of(bench)
    shortest = min(context for _, context in cells(facts))
    below = [budget for budget in budgets_of(facts) if budget < shortest]
    assert below and budget_cells(facts, cells(facts)) == list(product([1, 3], below))
    assert budget_cells(facts, cells(facts, contexts=[min(below)])) == []


def test_passes_are_apart_and_can_be_added(
    small: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "EMITTED", 11)  # two passes run every width more than 20 times
    facts = facts_of(small)
    once = measure_device(small, facts, passes=1).table
    twice = measure_device(small, facts, passes=2, contexts=[50]).table
    rows = [row for row in twice.rows.values() if isinstance(row, ForwardRow)]
    assert {row.context for row in rows} == {50, *(context for _, context in cells(facts))}
    for row in rows:
        if row.tokens == 1 and row.model == facts.target.digest:
            assert len(row.passes) == 2 and row.runs > 20
    for key, before in once.rows.items():
        assert twice.rows[key].passes[: len(before.passes)] == before.passes
    assert twice.scatter > 0.0 == once.scatter and once.drift == UNKNOWN_DRIFT


def test_a_stopped_run_keeps_finished_cells(
    batches: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_of(batches)
    visited: list[tuple[int, int]] = []
    real = device_module.time_probe

    def watching(stop_at: int) -> Callable[..., ProbeTimes]:
        def watched(one: Any, executable: Any, batch: int, context: int, seed: int) -> ProbeTimes:
            if (batch, context) not in visited:
                visited.append((batch, context))
            if len(visited) == stop_at:
                raise KeyboardInterrupt
            return real(one, executable, batch, context, seed)

        return watched

    monkeypatch.setattr(device_module, "time_probe", watching(3))
    with pytest.raises(KeyboardInterrupt):
        measure_device(batches, facts, passes=1)
    first_cells = visited[:2]
    assert first_cells == cells(facts)[:2]
    visited.clear()
    monkeypatch.setattr(device_module, "MOST_REFINED", 0)
    monkeypatch.setattr(device_module, "time_probe", watching(99))
    table = measure_device(batches, facts, passes=1).table
    assert not set(first_cells) & set(visited), "what is measured is not measured again"
    assert set(first_cells) | set(visited) == set(cells(facts))
    ones = [r for r in table.rows.values() if isinstance(r, ForwardRow) and r.tokens == 1]
    assert ones and all(len(row.passes) == 1 for row in ones)


def test_cliffs_are_looked_at_more_closely(
    small: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pass of the target over more than 20 rows is made to seem 1000 times as long."""
    facts = facts_of(small)
    real = device_module.time_probe

    def stepping(one: Any, executable: Any, batch: int, context: int, seed: int) -> ProbeTimes:
        seen = real(one, executable, batch, context, seed)
        slow = {
            key: [seconds * 1000 for seconds in values]
            for key, values in seen.samples.items()
            if key[:2] == ("forward", "target") and batch * key[2] > 20
        }
        return ProbeTimes(seen.samples | slow, seen.seconds_per_round)

    monkeypatch.setattr(device_module, "time_probe", stepping)
    table = measure_device(small, facts, passes=1).table
    assert 0 < table.refined <= MOST_REFINED
    digest = facts.target.digest
    for batch, context in cells(facts):
        widths = sorted(
            row.tokens
            for row in table.rows.values()
            if isinstance(row, ForwardRow)
            and (row.model, row.batch, row.context) == (digest, batch, context)
        )
        last = max(n for n in widths if n * batch <= 20)
        first = min(n for n in widths if n * batch > 20)
        assert first - last <= 8, "the step has been looked for between anchors 16 apart"
    left = find_cliffs(table, facts.shapes)
    assert table.refined == MOST_REFINED or not left


def test_layers_of_the_target_are_measured_apart(
    measured: tuple[Workbench, MeasuredDevice, list[str]],
) -> None:
    bench, device, _ = measured
    facts = facts_of(bench)
    shape, (batch, context) = facts.target, cells(facts)[0]
    rows = {
        (row.layers, row.tokens, row.logits): row.seconds
        for row in device.table.rows.values()
        if isinstance(row, ForwardRow)
        and row.layers
        and (row.batch, row.context) == (batch, context)
    }
    assert rows.keys() == {((0, 1), 1, True), ((0, 1), 1, False)} | {
        ((1, 3), length + 1, True) for length in EXIT_CHAINS
    }
    for logits in (True, False):
        seconds = device.forward_seconds(shape, batch, 1, context, int(logits), (0, 1))
        assert seconds.median == rows[(0, 1), 1, logits]
    between = device.forward_seconds(shape, batch, 6, context, 6, (1, 3))
    assert between.median > 0 and not between.extrapolated


def test_rounds_that_follow_each_other_in_a_text_are_measured_apart(tmp_path: Path) -> None:
    path = write_problem(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"methods": ["depth_by_position"]}))
    bench = Workbench(load_problem(path))
    facts = facts_of(bench)
    device = measure_device(bench, facts, passes=1)
    method = discover_methods()["depth_by_position"]
    assert isinstance(method, ProfiledByRunning)
    plans = [method.written(facts, one) for one in method.run_settings(facts)]
    passes = {
        step.stack
        for plan in plans
        for item in plan.rounds
        for step in round_demands(plan, item).steps
        if isinstance(step, ForwardDemand)
    }
    assert ((0, 3), Skips.of([1], [1])) in passes  # the first layer and the last one of three
    _, context = cells(facts)[0]
    for layers, skips in passes:
        assert device.forward_seconds(facts.target, 1, 1, context, 1, layers, skips).median > 0
