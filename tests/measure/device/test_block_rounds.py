"""Chains judged as a block are measured by their own rounds, after those that they rest on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.drafters import Model, OwnRounds  # noqa: E402
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.rounds.demands import OpDemand, round_demands  # noqa: E402
from specplan.measure.acceptance.continuations import request_of  # noqa: E402
from specplan.measure.device.coverage import profiling_probes  # noqa: E402
from specplan.measure.drafters import measure_drafters  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import gather_facts, load_problem, profiling_plan, search  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


def test_their_rounds_are_run_and_priced(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=4, output_tokens=16, temperature=0.8)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"methods": ["draft_model"]}))
    bench, device = Workbench(load_problem(path)), load_device("cpu-generic")
    facts = gather_facts(bench.problem, device=device)
    probes = [probe.plan for probe in profiling_probes(facts)]
    steps = [step for plan in probes for step in round_demands(plan, plan.rounds[0]).steps]
    assert "accept:block" in {step.name for step in steps if isinstance(step, OpDemand)}
    profiles = measure_drafters(bench, facts, device)
    blocks = [one for one in profiles if isinstance(one, OwnRounds)]
    assert blocks and Model("draft") in profiles
    known = gather_facts(bench.problem, device=device, profiles=profiles)
    offered = {one.drafter: one for one in search(known).candidates}
    for name in blocks:
        profile, plan = profiles[name], profiling_plan(known, name)
        assert (
            profile.key.how == "run"
            and plan is not None
            and isinstance(profile.evidence, RoundsRun)
        )
        assert offered[name].estimate is not None
        ran = bench.compile(plan)
        prompts = bench.prompts(PROFILE)
        rounds = [generate(ran, [request_of(bench, p, i)]).rounds for i, p in enumerate(prompts)]
        assert [_rounds(row) for row in profile.evidence.lengths] == rounds, name


def _rounds(lengths: tuple[int, ...]) -> int:
    """Rounds from the first place of a text to its end."""
    place = rounds = 0
    while place < len(lengths):
        rounds, place = rounds + 1, place + lengths[place] + 1
    return rounds
