"""Tokens and draws of every method are those of the first interpreter, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.reference.backend import ReferenceBackend
from specplan.ir.capabilities import refusals
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
            max_new_tokens=9 + 3 * row,
            temperature=temperature,
            seed=row + 17,
            stop_tokens=(7,) if row == 2 else (),
        )
        for row, prompt in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_kind_decodes_as_by_the_first_interpreter(
    name: str, temperature: float, case: Case
) -> None:
    requests = requests_of(temperature)
    for kind in kinds_of(RUNNABLE[name], case.facts[temperature]):
        if refusals(kind.plan, CAPABILITIES):
            assert name == "swift", kind.words
            continue
        for batch in (1, 4):
            expected, found = (
                [
                    item.tokens
                    for start in range(0, len(requests), batch)
                    for item in generate(executable, requests[start : start + batch]).completions
                ]
                for executable in (
                    ReferenceBackend().compile(kind.plan, case.models),
                    EagerBackend().compile(kind.plan, case.models),
                )
            )
            assert found == expected, f"{kind.words}, batch {batch}"
