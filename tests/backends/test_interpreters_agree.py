"""Tokens and draws of every method are those of the definition on both interpreters."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.reference.backend import ReferenceBackend
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from tests.backends.kinds import RUNNABLE, all_facts, kinds_of
from tests.backends.pairs import load_pair, save_pair

VOCABULARY = 61
PROMPTS = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5), (8, 2, 8, 2, 8))
"""Of unlike lengths; most of them repeat themselves."""


class Case(NamedTuple):
    """Models, and what every method needs to know of a problem, by temperature."""

    models: dict[str, CausalModel]
    facts: dict[float, ProblemFacts]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder: Path = tmp_path_factory.mktemp("equal")
    save_pair(folder, VOCABULARY, scale=0.14, sureness=6.0)
    facts = {
        temperature: all_facts(folder / f"problem{temperature}", temperature, VOCABULARY)
        for temperature in (0.0, 0.8)
    }
    return Case(load_pair(folder), facts)


def requests_of(temperature: float) -> list[Request]:
    """Four requests that end at different lengths, one of them at a stop token."""
    return [
        Request(
            prompt_tokens=prompt,
            max_new_tokens=6 + 2 * row,
            temperature=temperature,
            seed=row + 17,
            stop_tokens=(7,) if row == 2 else (),
        )
        for row, prompt in enumerate(PROMPTS)
    ]


def tokens_by(
    backend: OracleBackend | EagerBackend | ReferenceBackend,
    plan: Plan,
    case: Case,
    requests: list[Request],
    batch: int = 4,
) -> list[tuple[int, ...]]:
    """What each request gets, in batches of so many."""
    executable = backend.compile(plan, case.models)
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [item.tokens for group in groups for item in generate(executable, group).completions]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", RUNNABLE)
def test_methods_decode_as_is_defined(name: str, temperature: float, case: Case) -> None:
    requests = requests_of(temperature)
    every = [*kinds_of(RUNNABLE[name], case.facts[temperature])]
    for kind in (every[0], every[-1]) if len(every) > 1 else every:
        defined = tokens_by(OracleBackend(), kind.plan, case, requests)
        for backend in (ReferenceBackend(), EagerBackend()):
            assert tokens_by(backend, kind.plan, case, requests) == defined, kind.words
        if kind.plan.assumptions.reproducible:
            assert tokens_by(EagerBackend(), kind.plan, case, requests, batch=1) == defined
