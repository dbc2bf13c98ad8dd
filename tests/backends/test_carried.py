"""Drafts that go from round to round, numbers, and several trees in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.pairs import in_batches, load_pair, plainly
from tests.ir.plans_on_disk import plan_of, text_of

BLOCKS = text_of("jacobi_blocks")
HYBRID = BLOCKS.replace("state @guess", "state @left = value number(init=0.5)\nstate @guess") + (
    "round plain {\n  %t0 = root\n  %l = forward target %t0 cache=@kv pending=1\n"
    "  %a = accept %t0 target=%l\n  %e = emit %a\n  commit @kv %e\n  %b = load @left\n"
    '  %m = measure %a accepted\n  %c = compute "b + m + 1" b=%b m=%m\n  store @left %c\n}\n'
    'schedule {\n  when "emitted < 8" block\n  otherwise plain\n}\n'
)
SLIDING = BLOCKS.replace(
    BLOCKS[BLOCKS.index("  %left") : BLOCKS.index("  store")],
    "  %tip = pick %r of=leaves\n  %w = place %r at=%tip tokens=[3, 1] upto=8\n",
)
NOTHING_DONE = BLOCKS[: BLOCKS.index("  %n =")] + "  store @guess %g\n}\n"
BRANCHED = """plan branched
model target
state @kv = cache target
round decode {
  %t0 = root
  %t1 = place %t0 at=%t0 tokens=[5, 6]
  %f = pick %t1 of=all nodes=[0, 1]
  %t2 = place %t1 at=%f tokens=[7]
  %s = root
  %s1 = place %s at=%s tokens=[9, 9, 9]
  %l, %m = forward target %t2 %s1 cache=@kv pending=1
  %a = accept %s1 target=%m
  %e = emit %a
  commit @kv %e
}
"""
PLANS = {
    "blocks": BLOCKS,
    "a window that is always full": SLIDING,
    "blocks first, then plain": HYBRID,
    "window and pool": text_of("lookahead"),
    "two constant trees": BRANCHED,
}


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * (i % 3 + 1)) % 61 for p in range(3 + i * 3)),
            max_new_tokens=20 + i,
            seed=i,
            stop_tokens=(7,) if i % 3 == 0 else (),
        )
        for i in range(8)
    ]


@pytest.mark.parametrize("name", PLANS)
def test_output_is_that_of_plain_decoding(
    name: str, pair_folder: Path, requests: list[Request]
) -> None:
    models, plan = load_pair(pair_folder), parse_plan(PLANS[name])
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = plainly(models, requests)
    assert in_batches(plan, models, requests[:2], 1) == expected[:2]
    assert in_batches(plan, models, requests, 5) == expected
    assert refusals(plan, STATIC) == ()
    graphs = generate(StaticExecutable(plan, models), requests)
    assert [item.tokens for item in graphs.completions] == expected


def test_guesses_that_are_right_are_kept_and_the_rest_goes_on(pair_folder: Path) -> None:
    """A block of the target's own tokens, one of them wrong: settled in two rounds."""
    models = load_pair(pair_folder)
    request = Request(prompt_tokens=(3, 1, 4), max_new_tokens=12)
    right = list(plainly(models, [request])[0])
    session = EagerBackend().compile(plan_of("jacobi_blocks"), models).start([request])
    session.prefill()
    guess = session.batch.values["guess"]
    wrong = [*right[:2], (right[2] + 1) % 61, *right[3:8]]
    guess.tokens[0, 1:], guess.live[0] = torch.tensor(wrong), True  # type: ignore
    assert list(session.step("block").tokens[0]) == right[:3]
    left = session.batch.values["guess"]
    assert left.live[0, 1:].tolist() == [True] * 5 + [False] * 3  # type: ignore
    while not session.done[0]:
        session.step("block")
    assert session.text(0)[3:] == right


def test_what_is_carried_begins_as_declared_and_is_of_each_request(pair_folder: Path) -> None:
    models, plan = load_pair(pair_folder), parse_plan(HYBRID)
    requests = [Request(prompt_tokens=(3, 1, 4), max_new_tokens=n) for n in (12, 9)]
    session = EagerBackend().compile(plan, models).start(requests)
    session.prefill()
    for _ in range(3):
        session.step("plain")
    assert session.batch.values["left"].tolist() == [3.5, 3.5]  # type: ignore[union-attr]


EDITS: dict[str, tuple[str, str, str]] = {
    "passes for some requests": (BLOCKS, "    %x = place %r at=%tip tokens=[0] upto=8\n"
        "    yield %x", "    %q = forward target %g cache=@kv\n    yield %r"),
    "branching trees that are cut": (text_of("lookahead"), "%n = relabel %w other=%x",
        "%z = reroot %w %e\n  %n = relabel %w other=%x"),
    "trees without a shape": (NOTHING_DONE, "depth=8)", "depth=3)"),
    "measures of rows": (BLOCKS, "measure %r count", "measure %l top1"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(
    name: str, pair_folder: Path, requests: list[Request]
) -> None:
    text, old, new = EDITS[name]
    decodes_as_defined(edited(text, {old: new}), load_pair(pair_folder), requests[:3])


@pytest.mark.parametrize(("old", "new"), [("tokens=[0]", "tokens=[61]"), ("h=8)", "h=8, init=99)")])
def test_tokens_that_the_model_does_not_have_are_refused(
    old: str, new: str, pair_folder: Path
) -> None:
    with pytest.raises(UsageError, match="the vocabulary has 61"):
        EagerBackend().compile(parse_plan(BLOCKS.replace(old, new)), load_pair(pair_folder))
