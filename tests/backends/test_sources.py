"""Drafts from sources: the tokens of plain decoding, or the target's law, whatever was learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.ir.capabilities import refusals
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.runtime.executable import Session
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.pairs import in_batches, load_pair, plainly, run
from tests.backends.source_plans import LOOKUPS, lookup_plan, source_plans


@pytest.fixture(scope="module")
def requests(held_out: list[str]) -> list[Request]:
    """Texts that repeat themselves, of 3 to 60 tokens of 61."""
    asked = []
    for index, text in enumerate(held_out[::8]):
        piece = tuple(byte % 61 for byte in text.encode()[: 3 + index % 9])
        tokens = (piece * 20)[: 3 + index * 7 % 58]
        asked.append(Request(prompt_tokens=tokens, max_new_tokens=24, seed=index))
    return asked


@pytest.mark.parametrize("name", source_plans(greedy=True))
def test_greedy_output_is_that_of_plain_decoding(
    name: str, pair_folder: Path, requests: list[Request]
) -> None:
    models, plan = load_pair(pair_folder), source_plans(greedy=True)[name]
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = plainly(models, requests)
    executable = EagerBackend().compile(plan, models)
    for start in range(0, len(requests), 5):  # one executable: what it learned stays
        result = generate(executable, requests[start : start + 5])
        assert [item.tokens for item in result.completions] == expected[start : start + 5]
    alone = [generate(executable, [request]) for request in requests[5:8]]
    assert [result.completions[0].tokens for result in alone] == expected[5:8]
    assert sum(result.rounds for result in alone) < 3 * 24, "nothing was ever accepted"


def test_what_others_wrote_is_known_to_a_process_and_not_to_a_request(pair_folder: Path) -> None:
    """The same request again: a log of the process has its whole output, one of its own has not."""
    models = load_pair(pair_folder)
    request = Request(prompt_tokens=(5, 9, 2, 33, 17), max_new_tokens=30)
    rounds = {}
    for scope in ("request", "process"):
        plan = lookup_plan("log(capacity=500)", scope, "match=[1, 6] length=6", 6, 1, True)
        executable = EagerBackend().compile(plan, models)
        rounds[scope] = [generate(executable, [request]).rounds for _ in range(2)]
    assert rounds["request"][0] == rounds["request"][1] == rounds["process"][0]
    assert rounds["process"][1] <= 30 // 7 + 3 < rounds["process"][0]


def test_rows_teach_the_targets_own_choices(pair_folder: Path) -> None:
    """After a round, the row of every judged token holds what the target thinks follows it."""
    models = load_pair(pair_folder)
    plan = source_plans(greedy=True)["adjacency of one process"]
    executable = EagerBackend().compile(plan, models)
    session = executable.start([Request(prompt_tokens=(5, 9, 2), max_new_tokens=12)])
    session.prefill()
    session.step("decode")
    adjacency = executable.shared["adj"]
    assert session.text(0)[3] == adjacency.successors[2, 0]  # type: ignore[attr-defined]
    known = (adjacency.successors[:, 0] >= 0).nonzero()[0]  # type: ignore[attr-defined]
    assert known.tolist() == [2]


def test_requests_that_ended_teach_nothing(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    plan = source_plans(greedy=True)["adjacency of one process"]
    executable = EagerBackend().compile(plan, models)
    short = Request(prompt_tokens=(5, 9, 2), max_new_tokens=1)
    long = Request(prompt_tokens=(5, 9, 8), max_new_tokens=9)
    session = executable.start([short, long])
    _step_until(session, lambda: session.done[0])
    before = executable.shared["adj"].successors[2].tolist()  # type: ignore[attr-defined]
    executable.shared["adj"].successors[2] = 60  # type: ignore[attr-defined]
    session.step("decode")
    after = executable.shared["adj"].successors[2].tolist()  # type: ignore[attr-defined]
    assert before != after == [60] * 4 or 2 in session.text(1)[3:]


def _step_until(session: Session, ready: Callable[[], bool]) -> None:
    session.prefill()
    while not ready():
        session.step("decode")


BROKEN = {
    "automaton for all": ("automaton", "capacity=40)", "capacity=40) scope=process",
        "holds the text of one request"),
    "automaton, several": ("automaton", "length=6", "children=2 length=3", "one continuation"),
    "merged n-grams": ("ngram", "length=5", "children=3 length=5 nodes=7", "cannot merge"),
    "rows for a log": (
        "log", "update @past %t0 last=1", "%r = forward target %t0 cache=@kv pending=1\n"
        "  update @past %t0 logits=%r", "log learns the text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_sources_cannot_do_breaks_a_rule(name: str) -> None:
    base, old, new, reason = BROKEN[name]
    text = edited(print_plan(lookup_plan(*LOOKUPS[base], True)), {old: new})
    assert reason in "\n".join(map(str, verify_plan(parse_plan(text))))


def test_other_compositions_decode_as_is_defined(
    pair_folder: Path, requests: list[Request]
) -> None:
    """Several continuations of the text, and longer matches below nodes that were found."""
    ngram = print_plan(lookup_plan(*LOOKUPS["ngram"], True))
    rows = print_plan(source_plans(greedy=True)["adjacency of one request"])
    texts = (
        edited(ngram, {
            "lookup @past %t0 at=%t0 match=[1, 3] length=5":
            "lookup @text %t0 at=%t0 match=[1, 3] children=2 length=5"}),
        edited(rows, {"%f1 children=[2, 1]": "%f1 match=[1, 2] children=[2, 1]"}),
    )  # fmt: skip
    for text in texts:
        decodes_as_defined(text, load_pair(pair_folder), requests[:3])


def test_other_sources_are_refused_with_what_there_is() -> None:
    few = replace(CAPABILITIES, sources=frozenset({"trie", "ngram"}))
    refused = refusals(lookup_plan(*LOOKUPS["log"], True), few)
    assert "it looks up @text, ngram, trie only" in str(refused[0])


def test_batches_of_one_draw_alike(pair_folder: Path, requests: list[Request]) -> None:
    """Sources of one request leave its draws to its seed."""
    models = load_pair(pair_folder)
    sampled = [Request(**{**vars(item), "temperature": 0.9}) for item in requests[:3]]
    for name, plan in source_plans(greedy=False).items():
        if plan.assumptions.reproducible:
            alone = in_batches(plan, models, sampled, 1)
            assert run(plan, models, sampled) == alone, name
