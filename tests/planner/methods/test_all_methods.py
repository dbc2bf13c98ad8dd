"""What every method owes, checked for each of them: adding a method adds no test here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.capabilities import CAPABILITIES as EAGER
from specplan.backends.engines.registry import engines_by_draft
from specplan.backends.engines.structure import DRAFTERS, read_structure
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.json_form import plan_from_json, plan_to_json
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.matching import outcomes_of, specialized
from specplan.pages.methods import method_as_dict, methods_page, read_results
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Options, Refusal, discover_methods
from tests.planner.example_facts import example_facts
from tests.planner.rich_facts import rich_facts, usual_facts

CAPABILITIES = replace(EAGER, from_checkpoints=True)

METHODS = discover_methods()


@pytest.fixture(params=[0.0, 0.8], ids=["greedy", "sampled"], scope="module")
def facts(request: pytest.FixtureRequest) -> ProblemFacts:
    return usual_facts(request.param)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> ProblemFacts:
    """A target alone."""
    models = {"target": {"path": "target"}}
    return example_facts(tmp_path_factory.mktemp("bare"), given={}, models=models, sources=[])


@pytest.fixture(scope="module")
def unprofiled(tmp_path_factory: pytest.TempPathFactory) -> ProblemFacts:
    """Drafters of all forms, of none of which is known what is accepted."""
    return rich_facts(tmp_path_factory.mktemp("unprofiled"), given={})


def settings_of(method: Method[Any], facts: ProblemFacts) -> Iterator[Options]:
    """Those of all its families."""
    for family in method.choices(facts):
        assert isinstance(family, Family), family
        yield from family.settings


@pytest.fixture(params=sorted(METHODS))
def method(request: pytest.FixtureRequest) -> Method[Any]:
    return METHODS[request.param]


def test_the_first_methods_are_found() -> None:
    assert {"autoregressive", "draft_model", "early_exit", "prompt_lookup"} <= set(METHODS)


def test_it_says_what_it_is(method: Method[Any]) -> None:
    assert METHODS[method.name] is method
    assert method.summary and method.summary == method.summary.strip()
    assert isinstance(method.lossless, bool)
    assert method.paper or not (method.sources or method.needs_draft_model)


def test_it_offers_families_whose_settings_differ(method: Method[Any], facts: ProblemFacts) -> None:
    choices = method.choices(facts)
    names = [choice.name for choice in choices]
    assert names and len(set(names)) == len(names)
    for family in choices:
        assert isinstance(family, Family), family
        assert family.settings and len(set(family.settings)) == len(family.settings)
        assert len({setting.words for setting in family.settings}) == len(family.settings)
        assert all(domain.values and domain.description for domain in family.domains.values())


def test_every_choice_is_a_priced_plan(method: Method[Any], facts: ProblemFacts) -> None:
    """Sound, the same from text and from JSON, with an estimate, runnable where it says so."""
    assert method.status[:2] == ("priced", "emitted")
    assert not method.engine_drafter or method.engine_drafter in DRAFTERS
    pricer, shapes = Pricer(facts.device, facts.shapes, 2, 40, 32), set()
    for options in settings_of(method, facts):
        plan, drafter = method.plan(facts, options), method.drafter(facts, options)
        assert verify_plan(plan) == (), options
        assert parse_plan(print_plan(plan)) == plan
        assert plan_from_json(plan_to_json(plan)) == plan
        assert plan.assumptions.lossless == method.lossless
        assert plan.assumptions.temperature == facts.problem.workload.temperature
        assert {model.name for model in plan.models} <= set(facts.shapes)
        for item in plan.rounds:
            for outcome in outcomes_of(item):
                form = specialized(plan, item.name, outcome)
                assert form is None or verify_plan(form) == (), options
        assert json.loads(json.dumps(options.as_dict())).keys() == options.as_dict().keys()

        assert drafter is None or drafter in facts.profiles
        estimate = pricer.estimate(plan, None if drafter is None else facts.profiles[drafter])
        assert isinstance(estimate, Estimate), estimate
        assert 0 < estimate.seconds_per_token.median < estimate.seconds_per_token.high
        assert 1 <= estimate.tokens_per_round.low <= estimate.tokens_per_round.high
        assert estimate.memory.total > facts.target.weight_bytes

        refused = refusals(plan, CAPABILITIES)
        assert (not refused) == method.runnable, refused
        structure = read_structure(plan).longest
        assert structure.drafter == (method.engine_drafter or structure.drafter)
        unusual = [words for words in structure.unusual if "the rule block" not in words]
        assert not (method.engine_drafter and unusual)  # an engine has its drafter
        shapes.add(structure.shape)
    assert method.shape in shapes or shapes == {"empty"}


def test_without_what_it_needs_it_refuses(method: Method[Any], bare: ProblemFacts) -> None:
    for choice in method.choices(bare):
        if isinstance(choice, Refusal):
            assert choice.reason
        else:
            assert all(method.drafter(bare, options) is None for options in choice.settings)


def test_without_a_profile_it_refuses_and_says_what_would_help(
    method: Method[Any], unprofiled: ProblemFacts
) -> None:
    for choice in method.choices(unprofiled):
        if isinstance(choice, Refusal):
            assert "a ready profile as acceptance." in choice.reason
        else:
            assert all(method.drafter(unprofiled, options) is None for options in choice.settings)


def test_the_page_of_methods_is_that_of_the_code() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs/methods.md").read_text(encoding="utf-8")
    methods = [METHODS[name] for name in sorted(METHODS)]
    results = read_results(root / "benchmarks/results/methods.json")
    assert page == methods_page(methods, engines_by_draft(), results), (
        "run: specplan methods --markdown --measured benchmarks/results/methods.json"
        " > docs/methods.md"
    )


def test_results_stand_on_the_page(tmp_path: Path) -> None:
    """One column of two methods; a method that did not run there has no figure."""
    plain = {"method": "autoregressive", "tokens_per_round": 1.0, "ratio": 1.0}
    chain = {"method": "draft_model", "tokens_per_round": 2.5, "ratio": 1.75}
    column = {
        "task": "code",
        "temperature": 0.0,
        "batch": 4,
        "hardware": "a processor",
        "versions": {"torch": "2.13"},
        "pick": "draft_model",
        "regret": 0.0125,
        "final": {"low": -0.005, "high": 0.03, "turns": 90},
        "cells": [
            plain | {"predicted_seconds_per_token": 0.02},
            chain | {"predicted_seconds_per_token": 0.01},
        ],
        "peers": [{"method": "draft_model", "ratio": 1.5, "different_outputs": 0}],
    }
    other = column | {"task": "prose", "cells": column["cells"][:1], "regret": 0.0, "peers": []}
    del other["final"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"date": "2026-11-22", "columns": [column, other]}))
    page = methods_page([], {}, read_results(path))
    assert "| method | code, temperature 0.0, batch 4 | prose, temperature 0.0, batch 4 |" in page
    assert "| `draft_model` | 2.50, 1.75 x (2.00) | - |" in page
    assert "| `draft_model` over that of `transformers` | 1.50 x, equal | - |" in page
    assert "In none of the columns" not in page
    whole = methods_page([METHODS["draft_model"], METHODS["rest"]], {}, read_results(path))
    assert "In none of the columns here: `rest`.\n" in whole
    assert "| the pick | `draft_model`, 1.2 % (-0.5 % to 3.0 %) | `draft_model`, 0.0 % |" in page
    assert "a processor; torch 2.13; 2026-11-22" in page
    later = chain | {"method": "rest", "predicted_seconds_per_token": 0.01, "predicted_ratio": 1.5}
    more = column | {"cells": [*column["cells"], later], "joined": ["rest"]}
    path.write_text(json.dumps({"date": "2026-11-22", "columns": [more]}))
    page = methods_page([], {}, read_results(path))
    assert "| `rest` | 2.50, 1.75 x (1.50) |" in page
    assert "not part of the picks: `rest`.\n" in page
    path.write_text("{}")
    with pytest.raises(UsageError, match="results of methods"):
        read_results(path)


def test_methods_as_data(method: Method[Any]) -> None:
    data = method_as_dict(method, {(method.engine_drafter, method.shape): ["one"]})
    assert data["engines"] == ["one"]
    assert json.loads(json.dumps(data)) == data
    assert len(data["papers"]) == data["paper"].count("arXiv")
    assert not data["differs"] or data["differs"].endswith(".")
    assert {word for word in ("priced", "emitted", "runnable") if data[word]} == set(method.status)
