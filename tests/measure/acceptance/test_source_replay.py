"""Acceptance of sources, replayed on the target's text, is that of the rounds that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES  # noqa: E402
from specplan.cost_models.acceptance.drafters import Source  # noqa: E402
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.devices.measured.rows import OpRow  # noqa: E402
from specplan.cost_models.estimate import Estimate, Pricer  # noqa: E402
from specplan.datastores import build_datastore  # noqa: E402
from specplan.measure.acceptance.profile import measure_acceptance  # noqa: E402
from specplan.measure.device import time_probe  # noqa: E402
from specplan.measure.device.profile import measure_device  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import (  # noqa: E402
    Family,
    ProblemFacts,
    discover_methods,
    gather_facts,
    load_problem,
)
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from tests.measure.problems import REPOSITORY, write_problem  # noqa: E402

torch.set_num_threads(1)
PROMPTS = 5


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    path = write_problem(tmp_path_factory.mktemp("problem"), prompts=PROMPTS, output_tokens=40)
    problem = json.loads(path.read_text()) | {"sources": [*DRAFT_SOURCES], "datastore": "corpus"}
    problem["models"].pop("drafts")
    path.write_text(json.dumps(problem))
    build_datastore(REPOSITORY / "README.md", path.parent / "corpus", path.parent / "target")
    return Workbench(load_problem(path))


def measured(bench: Workbench, **options: object) -> ProblemFacts:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    wanted = [Source(word) for word in DRAFT_SOURCES]
    profiles = measure_acceptance(bench, facts, wanted=wanted, **options)  # type: ignore[arg-type]
    return gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)


def rounds_run(bench: Workbench, facts: ProblemFacts, method: str) -> list[tuple[float, float]]:
    """(rounds that ran, rounds replayed) of some settings, the prompts one after another."""
    counts = []
    chosen = discover_methods()[method]
    for family in chosen.choices(facts):
        if not isinstance(family, Family):
            continue
        for options in family.settings[-1:] + family.settings[:1]:
            plan = chosen.plan(facts, options)
            drafter = chosen.drafter(facts, options)
            assert drafter is not None
            drafting = read_drafting(plan, plan.rounds[0], facts.profiles[drafter].evidence)
            assert isinstance(drafting, Drafting)
            executable, rounds = bench.compile(plan), 0
            for prompt in bench.prompts(PROFILE):
                request = Request(prompt_tokens=prompt.tokens, max_new_tokens=bench.output_tokens)
                rounds += generate(executable, [request]).rounds
            expected = drafting.rounds(bench.output_tokens, 1)
            counts.append((rounds / PROMPTS, expected.mean))
    assert counts
    return counts


@pytest.mark.parametrize(
    "method", ["adaptive_ngram", "suffix", "suffix_automaton", "trie_lookahead", "rest"]
)
def test_replayed_rounds_are_the_rounds_that_run(bench: Workbench, method: str) -> None:
    for ran, replayed in rounds_run(bench, measured(bench), method):
        assert ran == pytest.approx(replayed)


def test_rows_along_the_text_tell_nearly_what_all_judged_rows_do(bench: Workbench) -> None:
    for ran, replayed in rounds_run(bench, measured(bench), "token_recycling"):
        assert ran == pytest.approx(replayed, rel=0.2)


def test_a_measured_device_prices_what_drafts_from_sources(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_probe, "EMITTED", 6)
    facts = measured(bench)
    device = measure_device(bench, facts, passes=1)
    names = {row.op for row in device.table.rows.values() if isinstance(row, OpRow)}
    assert {"lookup:log", "lookup:trie", "lookup:datastore", "update:adjacency"} <= names
    for name, method in discover_methods().items():
        if not set(method.sources) & set(DRAFT_SOURCES):
            continue
        for family in method.choices(facts):
            if isinstance(family, Family):
                plan = method.plan(facts, family.settings[0])
                drafter = method.drafter(facts, family.settings[0])
                pricer = Pricer(device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=40)
                price = pricer.estimate(plan, facts.profiles[drafter])
                assert isinstance(price, Estimate), (name, price)


def test_profiles_go_on_where_they_were(bench: Workbench, tmp_path: Path) -> None:
    """What was learned from prompts measured before is learned again."""
    first = bench.problem.model_copy(update={"profiles": tmp_path})
    again = Workbench(first)
    some = measured(again, limit=2).profiles
    every, whole = measured(again).profiles, measured(bench).profiles
    for word in map(Source, DRAFT_SOURCES):
        assert len(some[word].evidence.traces) == 2 < len(every[word].evidence.traces) == PROMPTS
        assert every[word].evidence.traces == whole[word].evidence.traces
