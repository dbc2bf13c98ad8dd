"""Drafting with the target without some of its blocks: what it writes leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.session import EagerSession
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.own_drafts import TeacherText
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import in_batches, load_pair, plainly

HEAD = "plan skips\nmodel target\nstate @kv = cache target\n"
DRAFT = "forward target %f cache=@kv pending=1 skip=[attn.1, mlp.2] write=scratch"
ROUND = """round {0} {{
  %t0 = root
  %c = repeat {1} (%t = %t0) {{
    %f = pick %t of=newest
    %q = {2}
    %n = grow %t at=%f logits=%q
    yield %n
  }}
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
}}
"""
CHAIN = ROUND.format("chain", 3, DRAFT)
TREE = """round tree {
  %t0 = root
  %q0 = forward target %t0 cache=@kv pending=1 skip=[attn.1, mlp.2] write=scratch
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest
  %q1 = forward target %f1 cache=@kv skip=[attn.1, mlp.2] write=scratch
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 2, 1]
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
}
"""
WHOLE = """round whole {
  %t = root
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
}
"""
SCRATCH_ALONE = DRAFT.replace("skip=[attn.1, mlp.2] ", "")
PLANS = {
    "chain": CHAIN,
    "tree": TREE,
    "the whole stack as scratch": ROUND.format("chain", 3, SCRATCH_ALONE),
    "turns": TREE + CHAIN + WHOLE + 'schedule {\n  when "emitted % 3 == 0" tree\n'
    '  when "emitted % 3 == 1" chain\n  otherwise whole\n}\n',
}  # fmt: skip


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def plan_of(rounds: str) -> Plan:
    plan = parse_plan(HEAD + rounds)
    assert verify_plan(plan) == ()
    return plan


@pytest.mark.parametrize("rounds", PLANS.values(), ids=PLANS)
def test_output_is_that_of_plain_decoding(rounds: str, models: dict[str, CausalModel]) -> None:
    requests = [
        Request(
            prompt_tokens=tuple((i * 7 + 3 * j) % 61 for j in range(1 + i)),
            max_new_tokens=14 + i,
            stop_tokens=(7,) if i % 2 else (),
        )
        for i in range(8)
    ]
    expected = plainly(models, requests)
    plan = plan_of(rounds)
    assert in_batches(plan, models, requests, 5) == expected
    assert in_batches(plan, models, requests[2:4], 1) == expected[2:4]


def _start(rounds: str, models: dict[str, CausalModel], **settings: Any) -> EagerSession:
    given: dict[str, Any] = {"prompt_tokens": (1, 2, 3, 4, 5), "max_new_tokens": 30} | settings
    request = Request(**given)
    session = EagerBackend().compile(plan_of(rounds), models).start([request])
    session.prefill()
    return session


def test_nothing_written_as_scratch_stays_in_the_cache(models: dict[str, CausalModel]) -> None:
    """After every round the cache holds what a plain pass over the text writes."""
    session = _start(CHAIN, models)
    accepted = 0
    while not session.done[0]:
        before = session.lengths[0]
        session.step("chain")
        accepted += session.lengths[0] - before - 1
        (cache,) = session.batch.caches.values()
        text = session.text(0)
        size = cache.whole[0]
        assert size in (len(text) - 1, len(text))
        clean = models["target"].new_cache(1, size)
        places = torch.arange(size)[None]
        mask = torch.ones(1, size, size, dtype=torch.bool).tril()
        models["target"].hidden(torch.tensor([text[:size]]), places, places, mask, clean)
        for ours, theirs in zip(
            cache.store.keys + cache.store.values, clean.keys + clean.values, strict=True
        ):
            assert torch.allclose(ours[:, :, :size], theirs[:, :, :size], atol=1e-9)
    assert accepted > 0, "some drafted token was accepted"


def test_acceptance_by_teacher_forcing_is_what_rounds_accept(
    models: dict[str, CausalModel],
) -> None:
    """From every place where a round began, exactly as many drafted tokens were accepted."""
    session = _start(CHAIN, models)
    begun: list[tuple[int, int]] = []
    while not session.done[0]:
        before = session.lengths[0]
        session.step("chain")
        begun.append((before - 5, session.lengths[0] - before - 1))
    request = Request(prompt_tokens=(1, 2, 3, 4, 5))
    teacher = TeacherText(models["target"], request, session.text(0)[5:], 3)
    lengths = teacher.lengths(Skips.of([1], [2]))
    assert [lengths[place] for place, _ in begun[:-1]] == [accepted for _, accepted in begun[:-1]]
    assert sum(lengths) > 0 and teacher.lengths(Skips.of([1], [2])) == lengths
    first = teacher.lengths(Skips.of([1], [2]), 1)
    assert first == [min(length, 1) for length in lengths]


def test_passes_say_what_they_left_out(models: dict[str, CausalModel]) -> None:
    session = _start(CHAIN, models)
    heard: list[tuple[str, int]] = []
    session.step("chain", lambda op, _, __, width, *___: heard.append((op, width)))
    forwards = [item for item in heard if item[0].startswith("forward")]
    assert forwards == [*[("forward:skip=attn.1,mlp.2", 1)] * 3, ("forward", 4)]


def _with_other_blocks() -> str:
    second = DRAFT.replace("%f", "%g").replace("attn.1", "attn.2")
    return CHAIN.replace("  %l =", f"  %g = pick %c of=newest\n  %p = {second}\n  %l =")


EDITS = {
    "scratch after what is kept": CHAIN.replace(
        "  %c =", "  forward target %t0 cache=@kv pending=1 gives=[]\n  %c ="
    ),
    "two sets of blocks in one cache": _with_other_blocks(),
    "hidden states of scratch": CHAIN.replace(
        "skip=[attn.1, mlp.2]", "layers=[0:2] keep=@x"
    ).replace("@kv pending=1\n  %a", "@kv pending=1 layers=[0:3]\n  %a"),
}


@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(name: str, models: dict[str, CausalModel]) -> None:
    track = "state @x = track target layer=2\n" if "@x" in EDITS[name] else ""
    requests = [
        Request(prompt_tokens=(1, 2, 3, 4, 5)[:size], max_new_tokens=9) for size in (1, 3, 5)
    ]
    decodes_as_defined(HEAD + track + EDITS[name], models, requests)


def test_blocks_that_are_not_there_are_refused(models: dict[str, CausalModel]) -> None:
    plan = plan_of(CHAIN.replace("mlp.2", "mlp.3"))
    with pytest.raises(UsageError, match="block of layer 3 of target, and it has 3 layers"):
        EagerBackend().compile(plan, models)
