"""Requests that join and leave a batch between rounds get the tokens that they get alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import Plan
from specplan.ir.types.residency import reads_in_chunks
from specplan.passes.chunk import Chunk
from specplan.runtime.continuous import serve
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.service import Arrival, BatchLimits, Service
from tests.backends.pairs import load_pair, plain, plainly
from tests.ir.plans_on_disk import plan_of

PROMPTS = (
    (3, 1, 4, 1, 5, 3, 1, 4, 1),
    tuple(range(2, 50)),
    (2, 7),
    (5, 9) * 17,
    (8, 2, 8, 2, 8),
    (7,),
    tuple(range(50, 10, -1)),
    (6, 6, 1, 6, 6, 1, 6, 6),
)
OUTPUTS = (9, 4, 14, 6, 1, 12, 7, 10)
PLANS = {
    "plain": plain(greedy=False),
    "chain": plan_of("draft_chain"),
    "tree": plan_of("static_tree"),
    "lookup": plan_of("prompt_lookup"),
    "nodes that live on": plan_of("parallel_draft_verify"),
    "loops that end by request": plan_of("growing_tree"),
    "a source of the process": plan_of("token_recycling"),
    "a value and a source": plan_of("lookahead"),
}

BUSY = {"nodes that live on"}
"""It drafts on while its prompt is read, and so its draws are of longer drafts."""


class Counting:
    """A clock that is one second later whenever it is asked."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1.0
        return self.seconds

    def wait(self, until: float) -> None:
        self.seconds = max(self.seconds, until)


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def requests(temperature: float) -> list[Request]:
    """Every other one is greedy."""
    return [
        Request(prompt_tokens=p, max_new_tokens=n, temperature=temperature * (i % 2), seed=i)
        for i, (p, n) in enumerate(zip(PROMPTS, OUTPUTS, strict=True))
    ]


def served(plan: Plan, models: Any, temperature: float, running: int = 3) -> Service:
    """All requests, which come two seconds apart but for a pause."""
    whens = [0, 0, 2, 6, 8, 40, 41, 200]
    arrivals = [Arrival(*one) for one in zip(whens, requests(temperature), strict=True)]
    executable = EagerBackend().compile(plan, models)
    return serve(executable, arrivals, BatchLimits(running, 60), clock=Counting())


def alone(plan: Plan, models: Any, temperature: float) -> list[tuple[int, ...]]:
    executable = EagerBackend().compile(plan, models)
    whole = [generate(executable, [request]) for request in requests(temperature)]
    return [one.completions[0].tokens for one in whole]


@pytest.mark.parametrize("name", PLANS)
def test_every_request_gets_what_it_gets_alone(name: str, models: dict[str, CausalModel]) -> None:
    """Prompts read ahead, and in chunks of two sizes that ride along."""
    plan = PLANS[name]
    temperature = 0.0 if plan.greedy_only else 0.9
    expected = alone(plan, models, temperature)
    greedy = [row for row, one in enumerate(requests(temperature)) if not one.temperature]
    right = plainly(models, requests(0.0))
    assert [expected[row] for row in greedy] == [right[row] for row in greedy]
    for tokens in (None, 5, 40):
        tried = plan if tokens is None else Chunk(tokens, 3)(plan)
        assert reads_in_chunks(tried) == (tokens is not None)
        service = served(tried, models, temperature)
        outputs = [one.completion.tokens for one in service.served]
        same = greedy if tokens is not None and name in BUSY else range(len(outputs))
        assert all(outputs[row] == expected[row] for row in same), f"chunks of {tokens}"
        assert [len(line) for line in outputs] == list(OUTPUTS)
        assert max(step.running for step in service.steps) == 3
        assert any(step.joined and step.running > step.joined for step in service.steps)
        assert sum(step.tokens for step in service.steps) == sum(OUTPUTS)
        for one in service.served:
            assert one.arrival <= one.admitted <= one.first <= one.last


def test_chunks_ride_along_and_others_wait_in_order(models: dict[str, CausalModel]) -> None:
    """A long prompt is read beside one that decodes, which emits in every step."""
    long, short = Request(prompt_tokens=PROMPTS[1], max_new_tokens=4), requests(0.0)[2]
    arrivals = [Arrival(0.0, short), Arrival(0.0, long)]
    executable = EagerBackend().compile(Chunk(8, 2)(plain()), models)
    service = serve(executable, arrivals, BatchLimits(2), clock=Counting())
    first, second = service.served
    reading = [step for step in service.steps if step.running == 2 and step.tokens == 1]
    assert len(reading) == -(-(len(PROMPTS[1]) - 1) // 8) - 1
    assert first.completion.rounds == len(first.completion.tokens)
    assert second.completion.rounds == len(reading) + len(second.completion.tokens)
    assert all(step.read_seconds <= 1.0 for step in service.steps), "nothing is read ahead"
    one_by_one = serve(executable, arrivals, BatchLimits(1), clock=Counting()).served
    assert one_by_one[1].admitted >= one_by_one[0].last
    assert [s.completion.tokens for s in one_by_one] == [
        s.completion.tokens for s in service.served
    ]


def test_what_cannot_join(models: dict[str, CausalModel]) -> None:
    """A view of a cache, a graph, and a text that is longer than the batch has room for."""
    view = EagerBackend().compile(plan_of("self_draft_view"), {**models, "draft": models["target"]})
    with pytest.raises(MissingCapabilityError, match="is a view"):
        serve(view, [Arrival(float(i), r) for i, r in enumerate(requests(0.0)[:2])])
    session = EagerBackend().compile(plain(), models).start(requests(0.0)[:1])
    with pytest.raises(UsageError, match=r"a text of 52 tokens .* larger capacity="):
        session.exchange([], [requests(0.0)[1]])
    assert serve(EagerBackend().compile(plain(), models), []).served == ()
