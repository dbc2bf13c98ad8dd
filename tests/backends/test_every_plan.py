"""Every method that runs: a plan of each kind is decoded once, and all that must hold is asserted.

Greedily and sampled: tokens are those of plain decoding, of the oracle, of any other batch, of the
plan after each pass and of its rounds as graphs. That sampled tokens follow the target's
distribution is asserted in `test_lossless_sampled.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.passes.pipeline import run_passes
from specplan.passes.renumber import renumber
from specplan.planner.facts import ProblemFacts
from specplan.runtime.executable import Executable
from specplan.runtime.requests import Request
from tests.backends.definition import Outputs, outputs
from tests.backends.heads import with_heads
from tests.backends.kinds import RUNNABLE, Kind, all_facts, kinds_of
from tests.backends.pairs import in_batches, load_pair, plain, plans_after_passes, save_pair
from tests.matrix import LONG

VOCABULARY = 61
FIRST = 5
"""Requests of the first batch, which other forms of a plan decode too; the others are one more."""
FEW = 25
"""Requests of all kinds but a method's last one, which gets all."""
PROMPTS = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5), (8, 2, 8, 2, 8))
"""Of different lengths; most of them repeat themselves."""
COLD = 1
"""Place of the request that is decoded greedily among those that are sampled."""
BUCKETS = [Bucket(8, 96)]
"""Larger than the batches, so that graphs run with rows to spare."""


class Case(NamedTuple):
    """What every method decodes: models, 100 requests with plain outputs, facts by temperature.

    `cold` is the plain output of the one request of temperature 0 among those that are sampled.
    """

    models: dict[str, Any]
    requests: list[Request]
    expected: list[tuple[int, ...]]
    cold: tuple[int, ...]
    facts: dict[float, ProblemFacts]


@pytest.fixture(scope="module")
def case(held_out: list[str], tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A pair that repeats itself, and is sure: texts, sources and models all draft well.

    Prompts are held-out texts of 3 to 60 bytes, folded onto the vocabulary.
    """
    folder: Path = tmp_path_factory.mktemp("every_plan")
    save_pair(folder, VOCABULARY, scale=0.14, sureness=6.0)
    models = with_heads(load_pair(folder))
    requests = [
        Request(
            prompt_tokens=tuple(byte % VOCABULARY for byte in text.encode()[: 3 + index * 7 % 58]),
            max_new_tokens=10 if index < FIRST else 3 + index % 4,
            stop_tokens=(7,) if index % 3 == 0 else (),
            seed=index,
        )
        for index, text in enumerate(held_out)
    ]
    assert len(requests) == 100
    expected = in_batches(plain(), models, requests, 50)
    texts = ((*item.prompt_tokens, *out) for item, out in zip(requests, expected, strict=True))
    corpus = tuple(chain.from_iterable(texts))
    facts = {
        temperature: all_facts(folder / f"at {temperature}", temperature, VOCABULARY, corpus)
        for temperature in (0.0, 0.8)
    }
    (cold,) = in_batches(plain(), models, sampled_requests(0.0)[COLD : COLD + 1], 1)
    return Case(models, requests, expected, cold, facts)


def sampled_requests(temperature: float) -> list[Request]:
    """Five requests that end at different lengths, one of them at a stop token.

    Sampled, they differ in temperature and truncation; the last two in their seeds alone.
    """
    requests = [
        Request(
            prompt_tokens=prompt,
            max_new_tokens=(4, 5, 6, 8)[row],
            temperature=temperature * (1.0, 0.0, 1.5, 2.5)[row],
            top_k=(0, 20)[row % 2],
            seed=row + 17,
            stop_tokens=(7,) if row == 2 else (),
        )
        for row, prompt in enumerate(PROMPTS)
    ]
    return [*requests, replace(requests[-1], seed=5)]


def decoded(executable: Executable, requests: Sequence[Request], first: int = FIRST) -> Outputs:
    """Tokens and rounds of each request: a batch of the first ones, and one of all others.

    Batches of one executable share what sources learn.
    """
    groups = (requests[:first], requests[first:])
    return [one for group in groups if group for one in outputs(executable, group)]


ONE_EACH = {
    "agreeing_exit", "confident_exit", "copied_exit", "depth_by_position", "exit_by_token",
    "policy_exit", "predictive_pipeline",
}  # fmt: skip
"""Methods whose rounds emit one token each."""


def tokens_of(decodes: Outputs) -> list[tuple[int, ...]]:
    return [tokens for tokens, _ in decodes]


def kinds(name: str, facts: ProblemFacts) -> Iterator[tuple[Kind, bool]]:
    """Each kind of a method's plans, and whether it is the first or the last."""
    every = [*kinds_of(RUNNABLE[name], facts)]
    assert every
    for kind in every:
        yield kind, kind in (every[0], every[-1])


@pytest.mark.parametrize("name", RUNNABLE)
def test_greedy_tokens(name: str, case: Case) -> None:
    """100 prompts (the last kind), before and after the passes, and (each end) as graphs.

    What is no lossless method decodes alike in all of them.
    """
    models, lossless = case.models, RUNNABLE[name].lossless
    every = [*kinds(name, case.facts[0.0])]
    for number, ((words, plan, drafts), ends) in enumerate(every, 1):
        requests = case.requests[: None if number == len(every) or LONG else FEW]
        decodes = decoded(EagerBackend().compile(plan, models), requests)
        tokens, rounds = tokens_of(decodes), sum(rounds for _, rounds in decodes)
        assert tokens == case.expected[: len(requests)] or not lossless, words
        more = drafts and name not in ONE_EACH
        assert rounds < sum(map(len, tokens)) or not more, f"{words}: nothing was accepted"
        lowered = run_passes(plan)
        if renumber(lowered) != renumber(plan):
            again = decoded(EagerBackend().compile(lowered, models), requests[:FIRST])
            assert again == decodes[:FIRST], words
        if (ends or LONG) and not STATIC.refusals(plan):
            graphs = StaticExecutable(plan, models, buckets=BUCKETS)
            assert tokens_of(decoded(graphs, requests[:FIRST])) == tokens[:FIRST], words


@pytest.mark.parametrize("name", RUNNABLE)
def test_sampled_tokens(name: str, case: Case) -> None:
    """Draws are those of the definition and of the seed, whoever else is in the batch.

    A request of temperature 0 among them gets the tokens of plain decoding.

    Of a method's first and last kind also those of graphs and after each pass. After all passes
    the last request is alone and the others follow in reverse, where that may make no difference:
    there the definition decodes the others alone, which have all prompts and settings.
    """
    models, requests, lossless = case.models, sampled_requests(0.8), RUNNABLE[name].lossless
    for kind, ends in kinds(name, case.facts[0.8]):
        words, plan, _ = kind
        decodes = decoded(EagerBackend().compile(plan, models), requests)
        assert decodes[-1] != decodes[-2] or not lossless, words
        assert decodes[COLD][0] == case.cold or not lossless, words
        alike = plan.assumptions.reproducible
        if ends:
            defined = requests[:-1] if alike else requests
            given = decoded(OracleBackend().compile(plan, models), defined)
            assert given == decodes[: len(defined)], words
        *stages, (last, lowered) = [("no pass", plan), *plans_after_passes(plan)]
        for after, stage in stages[1:] if ends or LONG else ():
            again = decoded(EagerBackend().compile(stage, models), requests)
            assert again == decodes, (words, after)
        eager = EagerBackend().compile(lowered, models)
        if alike:
            assert decoded(eager, requests[::-1], 1) == decodes[::-1], (words, last)
        else:
            assert decoded(eager, requests) == decodes, (words, last)
        if (ends or LONG) and not STATIC.refusals(plan):
            graphs = StaticExecutable(plan, models, buckets=BUCKETS)
            assert decoded(graphs, requests) == decodes, words


@pytest.mark.parametrize("name", [name for name, one in RUNNABLE.items() if not one.lossless])
def test_lossy_methods_decode_greedily_as_is_defined(name: str, case: Case) -> None:
    """No plain decoding says what these decode. The last two requests differ in seeds alone."""
    requests = sampled_requests(0.0)[:-1]
    for (words, plan, _), _ in kinds(name, case.facts[0.0]):
        eager = EagerBackend().compile(plan, case.models)
        decodes = decoded(eager, requests)
        assert decoded(OracleBackend().compile(plan, case.models), requests) == decodes, words
        eager.forget()
        assert decoded(eager, requests[::-1], 1) == decodes[::-1], words
