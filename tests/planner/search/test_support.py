"""What a backend can run reaches the search as data: the best plan that runs is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan import optimize
from specplan.backends.eager.capabilities import CAPABILITIES as EAGER
from specplan.backends.static.graph_capabilities import STATIC
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.key import file_name
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.capabilities import Capabilities, refusals
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import score
from specplan.planner.search.search import SearchResult, search
from specplan.problems import capabilities_of
from tests.planner.example_facts import SEVEN_BILLION, example_facts, profiles
from tests.planner.rich_facts import HEAD, drafter_profiles, rich_facts, write_drafter

CAPABILITIES = replace(EAGER, from_checkpoints=True)

NO_STATES = replace(CAPABILITIES, states=EAGER.states - {"track"})
"""A backend that keeps no hidden states, so that it runs no head."""

LARGE = {**SEVEN_BILLION, "num_hidden_layers": 1, "head_dim": None}


def good_head(folder: Path, **changes: Any) -> ProblemFacts:
    """Facts in which the head is accepted far more often than everything that runs here."""
    facts = rich_facts(folder, **changes)
    better = AcceptanceProfile.from_hazards(
        [[0.95]], key=facts.profiles[Model("head")].key, trials=1000
    )
    return replace(facts, profiles={**facts.profiles, Model("head"): better})


def search_with(facts: ProblemFacts, capabilities: Capabilities | None) -> SearchResult:
    return search(replace(facts, capabilities=capabilities))


def test_the_best_plan_that_runs_is_chosen(tmp_path: Path) -> None:
    facts = good_head(tmp_path)
    free, bound = search_with(facts, None), search_with(facts, NO_STATES)
    assert all(candidate.unsupported is None for candidate in free.candidates)
    refused = [c for c in bound.candidates if c.unsupported is not None]
    assert refused and all(c.priced and not c.admissible for c in refused)
    for candidate in bound.candidates:
        if candidate.plan is not None:
            cannot = refusals(candidate.plan, NO_STATES)
            assert (candidate.unsupported is None) == (not cannot)
            assert not cannot or cannot[0].where in str(candidate.refusal)
    assert not refusals(bound.chosen.plan, NO_STATES)  # type: ignore[arg-type]
    assert refusals(free.chosen.plan, NO_STATES)  # type: ignore[arg-type]
    assert score(free.chosen, "latency") < score(bound.chosen, "latency")
    best = [c for c in bound.best_of_each if c is not None]
    assert all(c.unsupported is None for c in best)


def test_schedules_are_made_of_rounds_that_run(tmp_path: Path) -> None:
    work = {"batch_sizes": [1, 8, 64], "prompt_lengths": [16, 200], "output_tokens": 32}
    given = profiles(True) | drafter_profiles()
    given[Model("head")] = AcceptanceProfile.from_hazards([[0.95]], key=given[Model("head")].key)
    models = {"target": {"path": "target"}, "drafts": [{"name": "draft", "path": "draft"}]}
    models["drafts"].append({"name": "head", "path": "head"})  # type: ignore[attr-defined]
    write_drafter(tmp_path / "head", HEAD | LARGE)
    facts = example_facts(tmp_path, workload=work, given=given, models=models)
    searched = search_with(facts, CAPABILITIES)
    schedules = [candidate for candidate in searched.candidates if candidate.by_cell]
    assert schedules
    for schedule in schedules:
        assert all(part.unsupported is None for part, _ in schedule.parts)


def test_an_op_that_does_not_run_is_refused_where_it_is_used(tmp_path: Path) -> None:
    no_loops = replace(CAPABILITIES, ops=CAPABILITIES.ops - {"repeat"})
    searched = search_with(rich_facts(tmp_path, methods=["draft_model"]), no_loops)
    chains = [c for c in searched.candidates if c.words == "chain of 4 by draft"]
    assert chains and all("it has no op repeat" in str(c.refusal) for c in chains)


def _one_trip(evidence: RoundsRun) -> tuple[tuple[int, ...], ...]:
    return tuple((1,) * len(row) for row in evidence.lengths)


def test_who_runs_all_trips_of_a_loop_pays_them_all(tmp_path: Path) -> None:
    """Rounds in one piece do masked work for who has stopped, whatever a profile tells of trips."""
    facts = example_facts(tmp_path, methods=["thompson"])
    given = {
        name: replace(one, evidence=replace(one.evidence, trips=_one_trip(one.evidence)))
        for name, one in facts.profiles.items()
        if isinstance(one.evidence, RoundsRun)
    }

    def chain(capabilities: Capabilities) -> Candidate:
        result = search(gather_facts(facts.problem, profiles=given, capabilities=capabilities))
        (chain,) = (c for c in result.candidates if c.words == "up to 4 by draft, by chance")
        assert chain.unsupported is None and chain.estimate is not None
        return chain

    early, late = (chain(one).estimates[0] for one in (CAPABILITIES, STATIC))
    assert "loops that may stop early run all their trips" in late.assumptions
    drafts = [
        sum(part.times for part in one.breakdown if part.model == "draft") for one in (early, late)
    ]
    assert drafts == [1, 4] and late.seconds_per_round.median > early.seconds_per_round.median


def test_a_backend_that_runs_nothing_is_refused(tmp_path: Path) -> None:
    nothing = replace(CAPABILITIES, ops=frozenset({"root"}))
    with pytest.raises(MissingCapabilityError, match="it has no op forward"):
        search_with(rich_facts(tmp_path, methods=["draft_model", "eagle3"]), nothing)


def test_no_backend_is_for_planning_only(tmp_path: Path) -> None:
    value = rich_facts(tmp_path).problem.model_dump(mode="json")
    assert capabilities_of(problem_from_dict(value, tmp_path)) == CAPABILITIES
    assert capabilities_of(problem_from_dict(value | {"backend": "none"}, tmp_path)) is None
    with pytest.raises(UsageError, match="no backend to run them"):
        problem_from_dict(value | {"backend": "none", "device": "measured"}, tmp_path)


def test_optimize_writes_bundles_of_plans_that_run(tmp_path: Path) -> None:
    facts = good_head(tmp_path, methods=["draft_model", "eagle3", "prompt_lookup"])
    for name, profile in facts.profiles.items():
        profile.save(tmp_path / f"{file_name(name)}.json")
    value = facts.problem.model_dump(mode="json")
    value["acceptance"] = {
        str(one): str(tmp_path / f"{file_name(one)}.json") for one in facts.profiles
    }
    runs = optimize(value)
    assert not refusals(runs.plan, CAPABILITIES)
    free = optimize(value | {"backend": "none"})
    assert free.search.chosen.drafter == runs.search.chosen.drafter == Model("head")
    assert json.dumps(free.as_dict())
    with pytest.raises(UsageError, match="only planned for"):
        optimize(value | {"backend": "none"}, out=tmp_path / "bundle")
