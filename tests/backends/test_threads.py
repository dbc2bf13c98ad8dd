"""Requests that branch: every thread is a request of its own, and shares what it begins with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.session import EagerSession
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.threads.host import branch, generate_branched
from specplan.runtime.tokenizer import Tokenizer, load_tokenizer
from tests.backends.pairs import load_pair, plain
from tests.ir.plans_on_disk import plan_of
from tests.runtime.tiny_tokenizer import TEXT, save_tokenizer

PLANS = {
    "plain": plain(greedy=False),
    "chain": plan_of("draft_chain"),
    "tree": plan_of("static_tree"),
}
LABELS = {"one": " a", "two": " b", "three": "def add", "four": " a"}


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def with_labels(plan: Plan, folder: Path, rows: int) -> Plan:
    """The plan, for requests with a thread per label."""
    path = folder / "labels.json"
    path.write_text(json.dumps(LABELS), encoding="utf-8")
    head, _, rest = print_plan(plan).partition("state ")
    return parse_plan(f'{head}threads {rows} by=labels(path="{path}")\nstate {rest}')


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("rows", [2, 4])
def test_threads_are_requests_of_their_own(
    name: str, rows: int, models: dict[str, CausalModel], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    plan = with_labels(PLANS[name], tmp_path, rows)
    prompt = tuple(tokenizer.encode(TEXT[:25]))
    temperature = 0.0 if plan.assumptions.temperature == 0.0 else 0.9
    request = Request(prompt_tokens=prompt, max_new_tokens=11, temperature=temperature, seed=3)
    executable = EagerBackend().compile(plan, models)
    done = branch(executable, request, tokenizer)
    assert [one.name for one in done.threads] == [*LABELS]
    for number, (thread, after) in enumerate(zip(done.threads, LABELS.values(), strict=True)):
        own = Request(
            prompt_tokens=(*prompt, *tokenizer.encode(after, special=False)),
            max_new_tokens=11, temperature=temperature, seed=3 + number,
        )  # fmt: skip
        alone = generate(EagerBackend().compile(PLANS[name], models), [own]).completions[0]
        assert thread.tokens == alone.tokens and thread.ended
    assert json.loads(done.text) == {one.name: one.text.strip() for one in done.threads}
    assert done.shared >= (len(prompt) - 1) * (len(LABELS) - 1)
    assert done.rounds < done.rows <= rows * done.rounds
    whole = generate_branched(executable, [request, request], tokenizer)
    assert [one.text for one in whole.completions] == [done.text] * 2
    assert {one.finish_reason for one in whole.completions} == {"length"}
    assert whole.rounds == sum(whole.rounds_by_name.values()) == 2 * done.rounds
    assert [item.where for item in refusals(plan, STATIC)], "graphs take no new requests"


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_copied_is_what_would_be_read(leaves: bool, models: dict[str, CausalModel]) -> None:
    """Keys of a beginning that is shared with a row that stays, or leaves, against its own."""
    begin = tuple(range(3, 20))
    first = Request(prompt_tokens=(*begin, 1, 2), max_new_tokens=6)
    second = Request(prompt_tokens=(*begin, 9, 8, 7), max_new_tokens=6)
    sessions = []
    for coming in (
        second,
        Request(prompt_tokens=(40, *second.prompt_tokens[1:]), max_new_tokens=6),
    ):
        session = EagerBackend().compile(PLANS["chain"], models).start([first], 64)
        assert isinstance(session, EagerSession)
        session.prefill()
        session.step("decode")
        shared = session.exchange([0] if leaves else [], [coming])
        assert shared == (len(begin) if coming is second else 0)
        session.prefill()
        sessions.append(session)
    alone = EagerBackend().compile(PLANS["chain"], models).start([second], 64)
    alone.prefill()
    assert isinstance(alone, EagerSession)
    for name, cache in alone.batch.caches.items():
        size = len(second.prompt_tokens) - 1
        copied = sessions[0].batch.caches[name]
        row = 0 if leaves else 1
        assert copied.whole[row] == cache.whole[0] == size
        for mine, own in zip(copied.store.keys, cache.store.keys, strict=True):
            assert torch.allclose(mine[row, :, :size], own[0, :, :size])


def test_a_plan_without_threads_has_none(
    models: dict[str, CausalModel], tokenizer: Tokenizer
) -> None:
    executable = EagerBackend().compile(PLANS["plain"], models)
    with pytest.raises(UsageError, match="no threads"):
        branch(executable, Request(prompt_tokens=(1, 2)), tokenizer)
