"""Runs that are timed do not know what they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES  # noqa: E402
from specplan.measure.bench.contenders import executable_timer, plan_timer  # noqa: E402
from specplan.measure.device.probes import source_probes  # noqa: E402
from specplan.measure.workbench import BENCH, Workbench  # noqa: E402
from specplan.planner import load_problem  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


def test_prompts_that_come_again_are_not_known_from_before(tmp_path: Path) -> None:
    """Drafts copied from past outputs: without forgetting, a text that comes again is known."""
    bench = Workbench(load_problem(write_problem(tmp_path, prompts=3)))
    (*_, probe) = source_probes([DRAFT_SOURCES["suffix"]], None, True)
    groups = [[prompt] for prompt in bench.prompts(BENCH)]
    timed, knowing = plan_timer(bench, probe.plan), bench.compile(probe.plan)
    first = [timed(group) for group in groups]
    again = [timed(group) for group in groups]
    assert [run.rounds for run in again] == [run.rounds for run in first]
    assert [run.outputs for run in again] == [run.outputs for run in first]
    served = plan_timer(bench, probe.plan, bench.prompts(BENCH))
    passes = [[served(group).rounds for group in groups] for _ in range(2)]
    assert passes[0] == passes[1], "what was served before is known in every pass alike"
    assert sum(passes[0]) < sum(run.rounds for run in first)
    known = [executable_timer(bench, knowing)(group).rounds for group in (*groups, *groups)]
    assert known[:3] == [run.rounds for run in first]
    assert sum(known[3:]) < sum(known[:3]), "a new timer knows nothing of what ran before it"
