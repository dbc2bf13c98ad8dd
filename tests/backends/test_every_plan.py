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
BATCH = 50
PROMPTS = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5), (8, 2, 8, 2, 8))
"""Of different lengths; most of them repeat themselves."""
BUCKETS = [Bucket(8, 96)]
"""Larger than the batches, so that graphs run with rows to spare."""


class Case(NamedTuple):
    """What every method decodes: models, 100 requests with plain outputs, facts by temperature."""

    models: dict[str, Any]
    requests: list[Request]
    expected: list[tuple[int, ...]]
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
            max_new_tokens=10 if index < 5 else 3 + index % 4,
            stop_tokens=(7,) if index % 3 == 0 else (),
            seed=index,
        )
        for index, text in enumerate(held_out)
    ]
    assert len(requests) == 100
    expected = in_batches(plain(), models, requests, BATCH)
    texts = ((*item.prompt_tokens, *out) for item, out in zip(requests, expected, strict=True))
    corpus = tuple(chain.from_iterable(texts))
    facts = {
        temperature: all_facts(folder / f"at {temperature}", temperature, VOCABULARY, corpus)
        for temperature in (0.0, 0.8)
    }
    return Case(models, requests, expected, facts)


def sampled_requests(temperature: float) -> list[Request]:
    """Five requests that end at different lengths, one of them at a stop token.

    Sampled, they differ in temperature and truncation; the last two in their seeds alone.
    """
    requests = [
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
    return [*requests, replace(requests[-1], seed=5)]


def decoded(executable: Executable, requests: Sequence[Request], batch: int) -> Outputs:
    """Tokens and rounds of each request; the batches of one executable share what sources learn."""
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [one for group in groups for one in outputs(executable, group)]


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
    """100 prompts, before and after the passes, in other batches, and (each end) as graphs.

    What is no lossless method decodes alike in all of them.
    """
    models, requests, lossless = case.models, case.requests, RUNNABLE[name].lossless
    for (words, plan, drafts), ends in kinds(name, case.facts[0.0]):
        decodes = decoded(EagerBackend().compile(plan, models), requests, BATCH)
        tokens, rounds = tokens_of(decodes), sum(rounds for _, rounds in decodes)
        assert tokens == case.expected or not lossless, words
        more = drafts and name not in ONE_EACH
        assert rounds < sum(map(len, tokens)) or not more, f"{words}: nothing was accepted"
        assert in_batches(plan, models, requests[::50], 1) == tokens[::50], words
        lowered = run_passes(plan)
        if renumber(lowered) != renumber(plan):
            first = decoded(EagerBackend().compile(lowered, models), requests[:BATCH], BATCH)
            assert first == decodes[:BATCH], words
        if (ends or LONG) and not STATIC.refusals(plan):
            graphs = StaticExecutable(plan, models, buckets=BUCKETS)
            assert tokens_of(decoded(graphs, requests[:5], 5)) == tokens[:5], words


@pytest.mark.parametrize("name", RUNNABLE)
def test_sampled_tokens(name: str, case: Case) -> None:
    """Draws are those of the definition and of the seed, whoever else is in the batch.

    Of a method's first and last kind also after each pass and alone; of the others, after all
    passes and in other batches.
    """
    models, requests, lossless = case.models, sampled_requests(0.8), RUNNABLE[name].lossless
    for kind, ends in kinds(name, case.facts[0.8]):
        words, plan, _ = kind
        eager = EagerBackend().compile(plan, models)
        decodes = decoded(eager, requests, 5)
        assert decodes[-1] != decodes[-2] or not lossless, words
        if ends:
            assert decoded(OracleBackend().compile(plan, models), requests, 5) == decodes, words
        if plan.assumptions.reproducible:
            eager.forget()
            assert decoded(eager, requests[::-1], 3) == decodes[::-1], words
            if ends or LONG:
                assert decoded(eager, requests[::2], 1) == decodes[::2], words
        stages = plans_after_passes(plan)
        for after, lowered in stages if ends or LONG else stages[-1:]:
            again = decoded(EagerBackend().compile(lowered, models), requests, 5)
            assert again == decodes, (words, after)
        if not STATIC.refusals(plan):
            graphs = StaticExecutable(plan, models, buckets=BUCKETS)
            assert decoded(graphs, requests, 5) == decodes, words


@pytest.mark.parametrize("name", [name for name, one in RUNNABLE.items() if not one.lossless])
def test_lossy_methods_decode_greedily_as_is_defined(name: str, case: Case) -> None:
    """No plain decoding says what these decode."""
    requests = sampled_requests(0.0)
    for (words, plan, _), _ in kinds(name, case.facts[0.0]):
        decodes = decoded(EagerBackend().compile(plan, case.models), requests, 5)
        assert decoded(OracleBackend().compile(plan, case.models), requests, 5) == decodes, words
        backwards = decoded(EagerBackend().compile(plan, case.models), requests[::-1], 3)
        assert backwards == decodes[::-1], words
