"""Loops that end by request: who goes on, what is kept, what a batch mate may not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.session import EagerSession
from specplan.backends.ops.measure import measure
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.trees import extended
from specplan.backends.ops.tensors.values import Logits, Nodes
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.values import Entry
from specplan.measure.acceptance.teacher import text_logits
from specplan.passes.pipeline import run_passes
from specplan.runtime.executable import StepResult
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.pairs import in_batches, load_pair, plainly
from tests.plan_texts import drafted

CHAIN = drafted(
    """
  %t0 = root
  %c = repeat 6 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q
    %m = measure %q top1
    %stop = compute "m < 0.2" m=%m
    yield %n until=%stop
  }
"""
)
TREE = drafted(
    """
  %t0 = root
  %none = compute "0.0"
  %pool, %end = repeat 5 (%t = %t0, %s = %none) {
    %f = pick %t of=newest best=3
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q children=3
    %w = measure %n value(best=7)
    %stop = compute "w - s <= 0.06" w=%w s=%s
    yield %n, %w until=%stop
  }
  %b = pick %pool of=all best=7
  %c = prune %pool to=%b
"""
)


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def requests_of(count: int, new: int = 14) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * (i % 3 + 1)) % 61 for p in range(3 + i * 3)),
            max_new_tokens=new + i,
            seed=i,
            stop_tokens=(7,) if i % 3 == 0 else (),
        )
        for i in range(count)
    ]


def begun(plan: Plan, models: dict[str, CausalModel], requests: list[Request]) -> EagerSession:
    assert verify_plan(plan) == ()
    session = EagerBackend().compile(plan, models).start(requests)
    session.prefill()
    return session


def trips_of(result: StepResult) -> list[int]:
    assert result.trips is not None and result.trips.shape[1] == 1
    return result.trips[:, 0].tolist()


@pytest.mark.parametrize("text", [CHAIN, TREE], ids=["chain", "tree"])
def test_output_is_that_of_plain_decoding(text: str, models: dict[str, CausalModel]) -> None:
    requests, plan = requests_of(8), parse_plan(text)
    expected = plainly(models, requests)
    assert in_batches(plan, models, requests[:2], 1) == expected[:2]
    assert in_batches(plan, models, requests, 5) == expected


def test_a_chain_ends_with_the_first_token_that_was_not_sure(
    models: dict[str, CausalModel],
) -> None:
    """Trips and tokens against the draft model run on the whole text."""
    requests = requests_of(6)
    session = begun(parse_plan(CHAIN), models, requests)
    for _ in range(3):
        texts = [session.text(row) for row in range(6)]
        result = session.step("decode")
        trips = trips_of(result)
        assert max(trips) > min(trips)
        for row, text in enumerate(texts):
            drafted: list[int] = []
            while True:
                logits = text_logits(
                    models["draft"], [*text, *drafted, 0], len(text) + len(drafted)
                )
                law = logits[0].softmax(-1)
                drafted.append(int(law.argmax()))
                if float(law.max()) < 0.2 or len(drafted) == 6:
                    break
            assert trips[row] == len(drafted), (row, drafted)
            emitted = result.tokens[row][:-1]
            assert emitted == drafted[: len(emitted)]


@pytest.mark.parametrize("text", [CHAIN, TREE], ids=["chain", "tree"])
def test_trips_are_a_requests_own(text: str, models: dict[str, CausalModel]) -> None:
    requests = requests_of(5, new=9)
    together = begun(parse_plan(text), models, requests)
    alone = [begun(parse_plan(text), models, [request]) for request in requests]
    differ = False
    for _ in range(4):
        trips = trips_of(together.step("decode"))
        for row, session in enumerate(alone):
            if session.done[0]:
                assert trips[row] == 0
                continue
            assert trips_of(session.step("decode")) == [trips[row]]
            differ = differ or trips[row] < max(trips)
    assert differ


def test_drawn_chains_depend_on_the_seed_alone(models: dict[str, CausalModel]) -> None:
    """The number that draws the bonus is the last one, however long the longest chain became."""
    text = CHAIN.replace(
        "    %n = grow %t at=%f logits=%q", "    %u = uniform 1 stream=draft\n"
        "    %n = grow %t at=%f logits=%q how=draw by=%u",
    ).replace("  %a = accept %c target=%l", "  %v = uniform 7 stream=accept\n"
              "  %a = accept %c target=%l rule=token by=%v")  # fmt: skip
    plan = parse_plan(text)
    hot = [
        Request(prompt_tokens=r.prompt_tokens, max_new_tokens=20, temperature=1.0, seed=r.seed)
        for r in requests_of(7)
    ]
    together = in_batches(plan, models, hot, 7)
    assert in_batches(plan, models, hot[:2], 1) == together[:2]
    assert in_batches(plan, models, hot[::-1], 4) == together[::-1]


def test_measures_of_a_row_and_of_a_tree() -> None:
    """By hand: logits of the law (.5, .3, .2), and path probabilities .5, .3 and .15."""
    assert measure(torch.tensor([[0.25, 0.5]]), Entry("uniform")).tolist() == [0.25]
    one = torch.ones(1, 1, dtype=torch.int64)
    rows = Logits(one, torch.tensor([[[0.5, 0.3, 0.2]]], dtype=torch.float64).log(), one > 0)
    assert measure(rows, Entry("top1")).tolist() == pytest.approx([0.5])
    assert measure(rows, Entry("margin")).tolist() == pytest.approx([0.2])
    assert measure(rows, Entry("entropy")).tolist() == pytest.approx([1.0296530])
    assert measure(replace(rows, live=one > 1), Entry("top1")).tolist() == [0.0]
    two = torch.ones(2, 1, dtype=torch.int64)
    tree = first_tree(two, two, torch.float64)
    for parent, chance, live in ((0, 0.5, [1, 1]), (0, 0.3, [1, 0]), (1, 0.3, [1, 0])):
        own = torch.full((2, 1), chance, dtype=torch.float64).log()
        there = torch.tensor(live)[:, None] > 0
        tree = extended(tree, two * parent, two, there, own=own)
    value = Entry("value", (("best", 2),))
    assert measure(tree, value).tolist() == pytest.approx([0.8, 0.5])
    assert measure(tree, Entry("count")).tolist() == [3, 1]
    some = Nodes(tree, torch.tensor([[2, 3], [1, 3]]))
    assert measure(some, value).tolist() == pytest.approx([0.45, 0.5])
    assert measure(some, Entry("value", (("best", 1),))).tolist() == pytest.approx([0.3, 0.5])
    assert measure(some, Entry("count")).tolist() == [2, 1]
    assert measure(Nodes(tree, range(2, 4)), value).tolist() == pytest.approx([0.45, 0.0])


EDITS: dict[str, dict[str, str]] = {
    "a loop in a loop": {
        "  %c = repeat 6 (%t = %t0) {": "  %c = repeat 2 (%x = %t0) {\n"
        "  %i = repeat 3 (%t = %x) {",
        "  %l = forward": "    yield %i\n  }\n  %l = forward"},
    "growth after it": {
        "  %l = forward target %c": "  %r = forward draft %c cache=@dkv pending=2\n"
        "  %g = pick %c of=leaves\n  %d = grow %c at=%g logits=%r children=2\n"
        "  %l = forward target %d",
        "accept %c": "accept %d"},
    "other ops": {"    yield %n until": "    %x = place %n at=%f tokens=[1]\n    yield %x until"},
    "measures of several rows": {
        "  %l = forward": "  %r = forward draft %c cache=@dkv pending=2\n"
        "  %z = measure %r top1\n  %l = forward"},
    "a tree that is pruned in the loop": {
        "%n = grow %t at=%f logits=%q": "%b = grow %t at=%f logits=%q children=3\n"
        "    %w = pick %b of=newest best=1\n    %n = prune %b to=%w",
        "%f = pick %t of=newest": "%f = pick %t of=leaves"},
}  # fmt: skip
"""Of a chain whose loop ends by request, ops that nobody's method puts together."""


@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(name: str, models: dict[str, CausalModel]) -> None:
    decodes_as_defined(edited(CHAIN, EDITS[name]), models, requests_of(3, new=8))


FALLBACK = drafted(
    """
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=2
  %m0 = measure %q0 top1
  %sure = compute "m >= 0.2" m=%m0
  %c, %x = repeat 6 (%t = %t0, %q = %q0) only=%sure {
    %f = pick %t of=newest
    %n = grow %t at=%f logits=%q
    %g = pick %n of=newest
    %s = forward draft %g cache=@dkv
    %m = measure %s top1
    %stop = compute "m < 0.2" m=%m
    yield %n, %s until=%stop
  }
""",
    head="assume law=free\n",
    judge="  %a = accept %c target=%l rule=rollback(threshold=THRESHOLD)\n",
)


def test_a_request_that_is_not_sure_at_first_takes_no_trip(models: dict[str, CausalModel]) -> None:
    """With nothing left to tolerate, rollback keeps the target's own best tokens."""
    requests = requests_of(8)
    plan = parse_plan(FALLBACK.replace("THRESHOLD", "0.0"))
    expected = plainly(models, requests)
    assert in_batches(plan, models, requests[:2], 1) == expected[:2]
    assert in_batches(plan, models, requests, 5) == expected
    session = begun(plan, models, requests[:1])
    none = some = 0
    while not session.done[0]:
        text = session.text(0)
        (trips,) = trips_of(session.step("decode"))
        sure = (
            float(text_logits(models["draft"], [*text, 0], len(text))[0].softmax(-1).max()) >= 0.2
        )
        assert (trips > 0) == sure
        none, some = none + (not sure), some + sure
    assert none and some


@pytest.mark.parametrize("text", [TREE, FALLBACK.replace("THRESHOLD", "3.0")])
def test_passes_leave_such_loops_as_they_are(text: str, models: dict[str, CausalModel]) -> None:
    plan, requests = parse_plan(text), requests_of(4, new=8)
    lowered = run_passes(plan)
    assert verify_plan(lowered) == () and "until=" in print_plan(lowered)
    assert in_batches(lowered, models, requests, 4) == in_batches(plan, models, requests, 4)


def test_what_the_small_model_writes_stands_where_it_is_likely_enough(
    models: dict[str, CausalModel],
) -> None:
    """Every emitted token is the target's best or above the threshold; some are no best ones."""
    plan, requests = parse_plan(FALLBACK.replace("THRESHOLD", "4.0")), requests_of(6)
    others = 0
    for request, tokens in zip(requests, in_batches(plan, models, requests, 3), strict=True):
        text = [*request.prompt_tokens, *tokens]
        logits = text_logits(models["target"], text, len(request.prompt_tokens))
        law = logits.double().log_softmax(-1)
        for row, token in zip(law, tokens, strict=True):
            best = int(row.argmax()) == token
            assert best or -float(row[token]) <= 4.0 + 1e-9
            others += not best
    assert others
