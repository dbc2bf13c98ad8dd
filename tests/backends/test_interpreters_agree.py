"""Tokens and draws of every method are those of the definition, on the interpreter too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.planner.facts import ProblemFacts
from specplan.runtime.executable import Executable
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import Outputs, outputs
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
    """Five requests that end at different lengths, one of them at a stop token.

    Sampled, they differ in temperature and truncation; the last two in their seeds alone.
    """
    found = [
        Request(
            prompt_tokens=prompt,
            max_new_tokens=4 + 2 * row,
            temperature=temperature * (1.0, 0.0, 1.5, 2.5)[row],
            top_k=(0, 20)[row % 2],
            seed=row + 17,
            stop_tokens=(7,) if row == 2 else (),
        )
        for row, prompt in enumerate(PROMPTS)
    ]
    return [*found, replace(found[-1], seed=5)]


def told(executable: Executable, requests: list[Request], batch: int) -> Outputs:
    """What each request gets, in batches of so many."""
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [one for group in groups for one in outputs(executable, group)]


@pytest.mark.parametrize("name", RUNNABLE)
def test_methods_decode_as_is_defined(name: str, case: Case) -> None:
    """Equal tokens in equal rounds, whoever else is in the batch; equal draws are the seed's.

    Greedily, `test_lossless_greedy.py` holds those that promise the target's law to plain decoding.
    """
    method = RUNNABLE[name]
    for temperature in (0.8,) if method.lossless else (0.0, 0.8):
        requests, facts = requests_of(temperature), case.facts[temperature]
        every = [*kinds_of(method, facts)]
        for kind in every:
            eager = EagerBackend().compile(kind.plan, case.models)
            found = told(eager, requests, 5)
            if kind in (every[0], every[-1]):
                oracle = OracleBackend().compile(kind.plan, case.models)
                assert found == told(oracle, requests, 5), kind.words
            if temperature and method.lossless:
                assert found[-1] != found[-2], kind.words
            if kind.plan.assumptions.reproducible:
                eager.forget()
                assert told(eager, requests, 1) == found, kind.words
                assert told(eager, requests[::-1], 3) == found[::-1], kind.words
