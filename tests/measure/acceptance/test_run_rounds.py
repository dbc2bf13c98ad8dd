"""Acceptance of drafts that hang on earlier rounds: told by the rounds, replayed exactly."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.drafters import Model, OwnRounds, SmallCache  # noqa: E402
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting  # noqa: E402
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.estimate import Estimate, Pricer  # noqa: E402
from specplan.cost_models.rounds.demands import OpDemand, round_demands  # noqa: E402
from specplan.ir.ops import Measure  # noqa: E402
from specplan.ir.plan import SourceState, walk_plan  # noqa: E402
from specplan.measure.acceptance.continuations import request_of  # noqa: E402
from specplan.measure.acceptance.profile import measure_acceptance  # noqa: E402
from specplan.measure.acceptance.run_rounds import run_rounds  # noqa: E402
from specplan.measure.device.coverage import profiling_probes  # noqa: E402
from specplan.measure.device.time_probe import time_probe  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import (  # noqa: E402
    Family,
    discover_methods,
    gather_facts,
    load_problem,
    profiling_plan,
)
from specplan.planner.drafters.candidates import possible_drafters  # noqa: E402
from specplan.planner.method import Refusal, own_rounds  # noqa: E402
from specplan.planner.methods.jacobi import METHOD as JACOBI  # noqa: E402
from specplan.planner.methods.jacobi import JacobiOptions  # noqa: E402  # noqa: E402
from specplan.planner.templates.profiled_by_running import ProfiledByRunning  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from tests.backends.pairs import save_pair  # noqa: E402
from tests.matrix import sized  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
METHODS = [
    method
    for method in discover_methods().values()
    if isinstance(method, ProfiledByRunning) and not method.by_name
]
NOT_HERE = {
    "domino", "exit_by_token", "fastcot", "neighbour_mixture", "nest", "policy_exit",
    "pruned_heads", "rescored_heads", "unverified_heads",
}  # fmt: skip
"""Methods that need a grammar, exits, an answer's trigger, a store of states, or heads."""
NAMED = [
    method
    for method in discover_methods().values()
    if isinstance(method, ProfiledByRunning)
    and method.by_name
    and "datastore" not in method.sources  # which takes a corpus; tests/runtime/sources has one
    and method.engine_drafter != "head"  # tests/measure/test_heads.py has some
]


def _bench(
    folder: Path, temperature: float, *, named: bool = False, output_tokens: int = 16
) -> Workbench:
    path = write_problem(folder, prompts=2, output_tokens=output_tokens, temperature=temperature)
    methods = NAMED if named else METHODS
    words = sorted({word for method in methods for word in method.sources})
    more = f', "methods": {[method.name for method in methods]}' if named else ""
    text = path.read_text().replace(
        '"schema_version": 1', f'"schema_version": 1, "sources": {words}{more}'
    )
    path.write_text(text.replace("'", '"'))
    if named:  # models that are sure of some tokens, and drafts that end where they are not
        words = json.loads((folder / "target/config.json").read_text())["vocab_size"]
        save_pair(folder, words, scale=1.0)
    return Workbench(load_problem(path))


def test_rounds_that_the_backend_does_not_run_are_refused_and_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _bench(tmp_path, 0.0)
    able = bench.backend.capabilities
    unable = replace(able, ops=able.ops - {"relabel"})
    monkeypatch.setattr(bench.backend, "capabilities", unable)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"), capabilities=unable)
    drafter = JACOBI.drafter(facts, next(iter(JACOBI.run_settings(facts))))
    assert drafter is not None
    assert measure_acceptance(bench, facts, wanted=[drafter]) == {}
    (refused,) = JACOBI.choices(facts)
    assert isinstance(refused, Refusal) and "it has no op relabel" in refused.reason


def _count_passes(seen: Counter[str | None], op: str, model: str | None, *sizes: float) -> None:
    if op.startswith("forward"):
        seen[model] += 1


@pytest.mark.parametrize("methods", [METHODS, NAMED], ids=["offered", "named"])
def test_replayed_rounds_are_the_rounds_that_ran(
    methods: list[ProfiledByRunning[Any]], tmp_path: Path
) -> None:
    bench = _bench(tmp_path, 0.0, named=methods is NAMED)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    names = [name for name in possible_drafters(facts) if profiling_plan(facts, name)]
    wanted = names[::3]
    if methods is NAMED:
        wanted = [
            *{plan.name: name for name in names if (plan := profiling_plan(facts, name))}.values()
        ]
    profiles = measure_acceptance(bench, facts, wanted=wanted)
    assert measure_acceptance(bench, facts, wanted=wanted) == profiles  # what is stored reads back
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)
    seen: set[str] = set()
    ended = 0
    for method in methods:
        for family in method.choices(facts):
            for options in family.settings if isinstance(family, Family) else ():
                plan, profile = (
                    method.plan(facts, options),
                    profiles[method.drafter(facts, options)],
                )
                pricer = Pricer(facts.device, facts.shapes, 1, 40, 16).estimate(plan, profile)
                assert isinstance(pricer, Estimate)
                executable, passes = bench.compile(plan), Counter[str | None]()
                watch = partial(_count_passes, passes)
                ran = [
                    generate(executable, [request_of(bench, prompt, index)], observer=watch).rounds
                    for index, prompt in enumerate(bench.prompts(PROFILE))
                ]
                evidence = profile.evidence
                if (
                    isinstance(evidence, RoundsRun) and evidence.trips
                ):  # a loop that ends by request
                    for model in plan.models_run:
                        priced = sum(p.times for p in pricer.breakdown if p.model == model)
                        assert passes[model] / sum(ran) == pytest.approx(priced), options
                    ended += len(set(evidence.stopped)) > 2
                assert sum(ran) / len(ran) == pytest.approx(pricer.rounds.mean), options
                seen.add(profile.key.drafter)
    offered = [m for m in methods if any(isinstance(f, Family) for f in m.choices(facts))]
    lacking = {method.name for method in methods} - {method.name for method in offered}
    assert lacking <= NOT_HERE
    assert seen == set(wanted) and len(seen) >= len(offered)
    assert methods is METHODS or ended > 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_place_tells_what_was_left_of_its_round(temperature: float, tmp_path: Path) -> None:
    bench = _bench(tmp_path, temperature)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    plan = profiling_plan(facts, own_rounds(facts, JACOBI, JacobiOptions(4)))
    assert plan is not None and profiling_plan(facts, OwnRounds("jacobi", "p0")) is None
    request = request_of(bench, bench.prompts(PROFILE)[0], 0)
    executable = bench.compile(plan)
    (run,) = run_rounds(executable, [request])
    lengths = [accepted for accepted, _ in run]
    result = generate(executable, [request])
    assert len(lengths) == result.emitted > 0
    place = rounds = 0
    while place < len(lengths):
        rounds, place = rounds + 1, place + lengths[place] + 1
    assert rounds == result.rounds


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.long), 0.8])
@pytest.mark.parametrize("named", [False, True], ids=["offered", "named"])
def test_requests_rehearsed_together_tell_what_each_tells_alone(
    named: bool, temperature: float, tmp_path: Path
) -> None:
    bench = _bench(tmp_path, temperature, named=named, output_tokens=10)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    plans = (profiling_plan(facts, name) for name in possible_drafters(facts))
    one_each = {plan.name: plan for plan in plans if plan is not None}
    prompts = bench.prompts(PROFILE)
    requests = [request_of(bench, prompt, index) for index, prompt in enumerate(prompts)]
    assert len(requests) > 1
    for plan in [*one_each.values()][:: sized(2, 1)]:
        if temperature > 0.0 and any(
            isinstance(state, SourceState) and state.scope == "process" for state in plan.states
        ):
            continue  # it drafts from what other requests drafted, and draws by its own drafts
        if any(isinstance(op, Measure) and "batch" in op.kind.name for op in walk_plan(plan)):
            continue  # it drafts as far as others' drafts were accepted
        executable = bench.compile(plan)
        alone = [run_rounds(executable, [request])[0] for request in requests]
        assert run_rounds(executable, requests) == alone, plan.name


def test_probes_tell_of_every_op_of_every_setting(tmp_path: Path) -> None:
    bench = _bench(tmp_path, 0.0)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    probes = [*profiling_probes(facts)]
    assert len(probes) == 2 * len(METHODS)
    seen = {
        what
        for probe in probes
        for kind, what, _ in time_probe(bench, bench.compile(probe.plan), 1, 40, 0).samples
        if kind == "op"
    }
    for name in possible_drafters(facts):
        plan = profiling_plan(facts, name)
        for step in () if plan is None else round_demands(plan, plan.rounds[0]).steps:
            assert not isinstance(step, OpDemand) or step.name in seen, (name, step.name)


def test_small_caches_are_measured_as_they_run(tmp_path: Path) -> None:
    """The target's own drafts exactly; a draft model's where its budget holds the whole text."""
    bench = Workbench(load_problem(write_problem(tmp_path, prompts=2, output_tokens=16)))
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    wanted = [
        SmallCache("target", 20),
        Model("draft"),
        SmallCache("draft", 500),
        SmallCache("draft", 20),
        SmallCache("target", 500),
        SmallCache("target", 500, "retrieved"),
    ]
    profiles = measure_acceptance(bench, facts, wanted=wanted)
    assert profiles[SmallCache("draft", 500)].evidence == profiles[Model("draft")].evidence
    assert profiles[SmallCache("draft", 20)].evidence != profiles[Model("draft")].evidence
    assert (
        profiles[SmallCache("target", 500, "retrieved")].evidence
        == profiles[SmallCache("target", 500)].evidence
    )
    method = discover_methods()["sparse_cache"]
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)
    (family, *_) = method.choices(facts)
    assert isinstance(family, Family) and family.name == "chain by small_cache(target, 20)"
    for options in family.settings[1::3]:
        plan = method.plan(facts, options)
        drafting = read_drafting(plan, plan.rounds[0], profiles[SmallCache("target", 20)].evidence)
        assert isinstance(drafting, Drafting)
        ran = [
            generate(bench.compile(plan), [request_of(bench, prompt, index)]).rounds
            for index, prompt in enumerate(bench.prompts(PROFILE))
        ]
        expected = drafting.rounds(bench.output_tokens, 1)
        assert sum(ran) / len(ran) == pytest.approx(expected.mean), options
