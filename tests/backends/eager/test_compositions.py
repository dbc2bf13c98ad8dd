"""Short plans whose ops were never meant for each other: greedily, each decodes as plain does."""

from __future__ import annotations

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.state.placements import Places
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain, save_pair
from tests.plan_texts import drafted

THREE = """  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
"""
BODIES = {
    "prune, then grow": THREE
    + """  %b = pick %t1 of=all best=2
  %p = prune %t1 to=%b
  %q1 = forward draft %p cache=@dkv
  %f = pick %p of=leaves
  %c = grow %p at=%f logits=%q1""",
    "graft, then grow": THREE
    + """  %r = root
  %d = lookup @text %r at=%r match=[1, 3] length=2
  %g = graft %t1 %d same=merge
  %q1 = forward draft %g cache=@dkv
  %f = pick %g of=newest
  %c = grow %g at=%f logits=%q1""",
    "draws below the best": THREE
    + """  %f = pick %t1 of=newest best=2
  %q1 = forward draft %f cache=@dkv
  %u = uniform 2 stream=d
  %c = grow %t1 at=%f logits=%q1 how=draw by=%u""",
    "lookup below leaves": THREE
    + """  %f = pick %t1 of=newest
  %c = lookup @text %t1 at=%f match=[1, 3] length=2""",
    "two continuations of the text": """  %t0 = root
  %c = lookup @text %t0 at=%t0 match=[1, 3] length=2 children=2""",
    "continuations of the text, merged": THREE
    + """  %f = pick %t1 of=newest
  %c = lookup @text %t1 at=%f match=[1, 3] length=3 children=2 nodes=4""",
    "prune to the worst": THREE
    + """  %b = pick %t1 of=all worst=2
  %c = prune %t1 to=%b""",
    "the best of what grew": """  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=9
  %c = grow %t0 at=%t0 logits=%q0 children=4 keep=2""",
    "lookup where a loop stopped": """  %t0 = root
  %x = repeat 4 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q
    %m = measure %q top1
    %s = compute "m < 0.4" m=%m
    yield %n until=%s
  }
  %tip = pick %x of=leaves
  %c = lookup @text %x at=%tip match=[1, 3] length=4""",
    "draft behind a lookup": """  %t0 = root
  %g = lookup @text %t0 at=%t0 match=[1, 3] length=3
  %f = pick %g of=leaves
  %q = forward draft %g cache=@dkv pending=9
  %c = grow %g at=%f logits=%q""",
    "the same nodes twice": THREE
    + """  %q1 = forward draft %t1 cache=@dkv
  %q2 = forward draft %t1 cache=@dkv
  %f = pick %t1 of=newest nodes=[1]
  %c = grow %t1 at=%f logits=%q2 children=2""",
    "lookups below what was pruned": THREE
    + """  %f = pick %t1 of=newest best=1
  %p = prune %t1 to=%f
  %h = pick %p of=leaves
  %g = lookup @text %p at=%h match=[1, 3] length=2 children=2
  %b = pick %g of=leaves
  %q1 = forward draft %g cache=@dkv
  %c = grow %g at=%b logits=%q1""",
}
PROMPTS = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9), (8, 2, 8, 2, 8))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    """A pair that repeats itself, so that texts and models draft well."""
    folder = tmp_path_factory.mktemp("composed")
    save_pair(folder, 61, scale=0.14, sureness=6.0)
    return load_pair(folder)


def outputs(
    plan: Plan, models: dict[str, CausalModel], batch: int
) -> tuple[list[tuple[int, ...]], int]:
    """Emitted tokens, and rounds."""
    requests = [
        Request(prompt_tokens=prompt, max_new_tokens=12 + row, seed=row)
        for row, prompt in enumerate(PROMPTS)
    ]
    executable = EagerBackend().compile(plan, models)
    parts = [
        generate(executable, requests[start : start + batch])
        for start in range(0, len(requests), batch)
    ]
    items = [item for part in parts for item in part.completions]
    return [item.tokens for item in items], sum(item.rounds for item in items)


@pytest.fixture(scope="module")
def expected(pair: dict[str, CausalModel]) -> tuple[list[tuple[int, ...]], int]:
    """What the target says alone."""
    return outputs(plain(), pair, 1)


@pytest.mark.parametrize("name", BODIES)
def test_compositions_decode_as_plain_does(
    name: str, pair: dict[str, CausalModel], expected: tuple[list[tuple[int, ...]], int]
) -> None:
    """Four requests together, and in batches of three and of one."""
    plan = parse_plan(drafted(BODIES[name]))
    tokens, rounds = outputs(plan, pair, 4)
    assert tokens == expected[0] and rounds < expected[1]
    assert outputs(plan, pair, 3) == (tokens, rounds)


def test_slots_known_before_a_round_change_nothing(
    pair: dict[str, CausalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of static shapes decode the same where their nodes are found by keys."""
    body = (
        THREE
        + """  %q1 = forward draft %t1 cache=@dkv
  %u = uniform 3 stream=d
  %c = grow %t1 at=%t1 logits=%q1 children=[0, 2, 1, 0] how=draw by=%u"""
    )
    plan = parse_plan(drafted(body))
    known = outputs(plan, pair, 4)
    monkeypatch.setattr("specplan.backends.eager.plan_analysis.places", lambda *_: Places())
    assert outputs(plan, pair, 4) == known
