"""Rounds that change with what was emitted: output is that of plain decoding, and both run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.cost_models.rounds.segments import read_drafted, read_segments, segment_rounds
from specplan.ir.plan import Plan
from specplan.ir.schedule import select_round
from specplan.measure.acceptance.run_rounds import run_rounds
from specplan.passes.canonicalise import canonicalise
from specplan.passes.pipeline import run_passes
from specplan.planner.methods.jacobi import METHOD, JacobiOptions
from specplan.planner.templates.merged_rounds import first_then
from specplan.runtime.executable import Executable
from specplan.runtime.generate import Generation, generate
from specplan.runtime.requests import Request
from tests.backends.kinds import all_facts
from tests.backends.pairs import load_pair, plain, plainly, save_pair
from tests.plan_texts import greedy_chain

FIRST = 6


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair that repeats itself, so that guesses come true."""
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder, scale=0.14, sureness=6.0)
    return folder


def requests_of(temperature: float = 0.0) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * (i % 3 + 1)) % 61 for p in range(3 + i * 3)),
            max_new_tokens=13 + i % 3,
            seed=i,
            stop_tokens=(7,) if i % 3 == 0 else (),
            temperature=temperature,
        )
        for i in range(6)
    ]


def ran(executable: Executable, requests: list[Request], batch: int) -> list[Generation]:
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [generate(executable, group) for group in groups]


def texts(generations: list[Generation]) -> list[tuple[int, ...]]:
    return [item.tokens for generation in generations for item in generation.completions]


def counts(generations: list[Generation], name: str) -> int:
    return sum(generation.rounds_by_name.get(name, 0) for generation in generations)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_and_then_plain_decoding(
    temperature: float, batch: int, repeating: Path, tmp_path: Path
) -> None:
    """Blocks end where a request has emitted so many tokens; all passes keep every round."""
    models, requests = load_pair(repeating), requests_of(temperature)
    plan = METHOD.plan(all_facts(tmp_path, temperature), JacobiOptions(4, FIRST))
    tokens = ran(EagerBackend().compile(plan, models), requests, batch)
    if not temperature:
        assert texts(tokens) == plainly(models, requests)
        assert counts(tokens, "blocks") < FIRST * len(tokens), "some guess was right"
    assert counts(tokens, "blocks") > 0 and counts(tokens, "plain") > 0
    for generation in tokens if batch == 1 else ():
        (completion,) = generation.completions
        blocks, after = (generation.rounds_by_name.get(n, 0) for n in ("blocks", "plain"))
        emitted = len(completion.tokens)
        assert blocks <= FIRST and after <= max(emitted - FIRST, 0)
        if emitted > FIRST + 4:  # a round emits five tokens at most
            assert after >= emitted - FIRST - 4
    for other in (canonicalise(plan), run_passes(plan)) if batch > 1 else ():
        again = ran(EagerBackend().compile(other, models), requests, batch)
        assert texts(again) == texts(tokens)
        names = [sorted(generation.rounds_by_name.values()) for generation in tokens]
        assert [sorted(generation.rounds_by_name.values()) for generation in again] == names


def test_rounds_never_go_back_when_the_foremost_request_ends(
    repeating: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a request of the batch has emitted counts, also once it wants no more."""
    choices: list[tuple[str, int, int]] = []

    def noted(plan: Plan, **load: Any) -> str:
        chosen = select_round(plan, **load)
        choices.append((chosen, load["emitted"], load["batch"]))
        return chosen

    monkeypatch.setattr("specplan.runtime.generate.select_round", noted)
    plan = METHOD.plan(all_facts(tmp_path, 0.0), JacobiOptions(4, 2 * FIRST))
    asked = [
        replace(request, max_new_tokens=40 if row else 2 * FIRST, stop_tokens=())
        for row, request in enumerate(requests_of())
    ]
    generate(EagerBackend().compile(plan, load_pair(repeating)), asked)
    names, emitted = [name for name, _, _ in choices], [count for _, count, _ in choices]
    assert "blocks" in names and "plain" in names
    assert names == sorted(names) and emitted == sorted(emitted)
    assert any(batch < len(asked) for name, _, batch in choices if name == "plain")


def test_rounds_are_priced_by_the_run_without_an_end(repeating: Path, tmp_path: Path) -> None:
    """Blocks that ran throughout tell how many rounds they take for the first tokens alone."""
    models, facts, output = load_pair(repeating), all_facts(tmp_path, 0.0), 16
    requests = [replace(r, max_new_tokens=output, stop_tokens=()) for r in requests_of()]
    pure, first = (METHOD.plan(facts, JacobiOptions(4, first)) for first in (None, FIRST))
    lengths = run_rounds(EagerBackend().compile(pure, models), requests)
    evidence = RoundsRun.of_places(lengths)
    drafted = read_drafted(first, read_segments(first, 1, 40, output), evidence)
    assert not isinstance(drafted, Unpriced)
    blocks, after = segment_rounds(drafted, 1)
    tokens = ran(EagerBackend().compile(first, models), requests, 1)
    assert counts(tokens, "blocks") / len(requests) == pytest.approx(blocks.mean)
    assert counts(tokens, "blocks") < FIRST * len(requests), "some guess was right"
    # what the last of these rounds emits beyond the bound is known in the mean of all rounds
    assert counts(tokens, "plain") / len(requests) == pytest.approx(after.mean, abs=0.5)


@pytest.mark.parametrize("then", ["plain", "chains"])
def test_graphs_of_both_rounds(then: str, repeating: Path) -> None:
    models, requests = load_pair(repeating), requests_of()[1:5]
    after: Plan = plain() if then == "plain" else greedy_chain(2)
    plan = first_then(greedy_chain(4), FIRST, after, ("early", "late"))
    assert not STATIC.refusals(plan)
    expected = plainly(models, requests)
    executable = StaticExecutable(plan, models, buckets=[Bucket(2, 64), Bucket(4, 64)])
    tokens = ran(executable, requests, 2)
    assert texts(tokens) == expected
    reference = ran(EagerBackend().compile(plan, models), requests, 2)
    assert [one.rounds_by_name for one in tokens] == [one.rounds_by_name for one in reference]
    assert counts(tokens, "early") > 0 and counts(tokens, "late") > 0
