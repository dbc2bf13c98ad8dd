"""Drafting with heads that read a part of the cached text, and heads that read all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.blocks import NO_SKIPS, read_heads
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.own_drafts import TeacherText
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair
from tests.backends.test_skips import HEAD, ROUND, TREE
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.runtime.tiny_models import save_tiny

POLICY = "policy=by_head(budget=7, sink=2, retrieval=[head.0.1, head.2.0])"
DRAFT = f"forward target %f cache=@kv pending=1 {POLICY} write=scratch"
CHAIN = ROUND.format("chain", 3, DRAFT)
TREES = TREE.replace("skip=[attn.1, mlp.2]", POLICY)


def plan_of(rounds: str) -> Plan:
    plan = parse_plan(HEAD + rounds)
    assert verify_plan(plan) == ()
    return plan


def requests(count: int, new: int, temperature: float = 0.0) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * p * (i % 3 + 1)) % 61 for p in range(2 + i * 7)),
            max_new_tokens=new + i,
            seed=i,
            temperature=temperature,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


@pytest.mark.parametrize("rounds", [CHAIN, TREES], ids=["chain", "tree"])
def test_it_decodes_as_is_defined(rounds: str, models: dict[str, CausalModel]) -> None:
    """Tokens and rounds of the oracle, which has a mask per head; alone those of the target."""
    some = requests(4, 10)[1:]
    decodes_as_defined(HEAD + rounds, models, some)
    assert in_batches(plan_of(rounds), models, some[:1], 1) == plainly(models, some[:1])


def test_windows_hold_for_all_heads(tmp_path: Path) -> None:
    windowed = {"target": load_model(save_tiny("mistral", tmp_path / "target"), dtype="float64")}
    decodes_as_defined(HEAD + CHAIN, windowed, requests(3, 8))


def test_drafts_do_not_depend_on_batch_mates(models: dict[str, CausalModel]) -> None:
    drawn = CHAIN.replace("    %n = grow", "    %u = uniform 1 stream=draft\n    %n = grow")
    drawn = drawn.replace("logits=%q\n", "logits=%q how=draw by=%u\n")
    drawn = drawn.replace(
        "  %a = accept %c target=%l\n",
        "  %v = uniform 4 stream=accept\n  %a = accept %c target=%l rule=token by=%v\n",
    )
    some = requests(5, 12, temperature=0.9)
    plan = plan_of(drawn)
    assert in_batches(plan, models, some, 5)[:3] == in_batches(plan, models, some[:3], 1)


def test_the_targets_law_is_kept(tmp_path: Path) -> None:
    save_pair(tmp_path, VOCABULARY, scale=0.15)
    small = load_pair(tmp_path)
    text = CHAIN.replace("budget=7, sink=2", "budget=2, sink=1").replace("repeat 3", "repeat 2")
    text = text.replace("    %n = grow", "    %u = uniform 1 stream=draft\n    %n = grow")
    text = text.replace("logits=%q\n", "logits=%q how=draw by=%u\n")
    text = text.replace(
        "  %a = accept %c target=%l\n",
        "  %v = uniform 3 stream=accept\n  %a = accept %c target=%l rule=token by=%v\n",
    )
    assert p_value(plan_of(text), small, law_of_texts(small["target"]), seeds=800) > 1e-4


def test_teacher_forcing_accepts_what_rounds_accept(models: dict[str, CausalModel]) -> None:
    """From every place where a round began, as many drafted tokens; fewer heads, other drafts."""
    request = requests(4, 40)[3]
    session = EagerBackend().compile(plan_of(CHAIN), models).start([request])
    session.prefill()
    begun, prompt = list[tuple[int, int]](), len(request.prompt_tokens)
    while not session.done[0]:
        before = session.lengths[0]
        session.step("chain")
        begun.append((before - prompt, session.lengths[0] - before - 1))
    teacher = TeacherText(models["target"], request, session.text(0)[prompt:], 3)
    retrieval = read_heads(("head.0.1", "head.2.0"))
    lengths = teacher.lengths(NO_SKIPS, window=(7, 2), retrieval=retrieval)
    assert [lengths[place] for place, _ in begun[:-1]] == [accepted for _, accepted in begun[:-1]]
    every = frozenset((layer, head) for layer in range(3) for head in range(2))
    whole = teacher.lengths(NO_SKIPS, window=(7, 2), retrieval=every)
    assert set(whole[:-3]) == {3}, "it is the target itself"
    assert sum(teacher.lengths(NO_SKIPS, window=(7, 2))) != sum(lengths)
    assert 0 < sum(lengths) < 3 * len(lengths)


def test_heads_that_are_not_there_and_compiled_rounds_are_refused(
    models: dict[str, CausalModel],
) -> None:
    with pytest.raises(UsageError, match="head 2 or layer 2 of target, and it has 3 layers of 2"):
        EagerBackend().compile(plan_of(CHAIN.replace("head.0.1", "head.0.2")), models)
    assert any("policy may only be unset" in one.reason for one in refusals(plan_of(CHAIN), STATIC))


BROKEN = {
    "what it writes is no text": (" write=scratch", "", "write=scratch"),
    "text beyond the root": ("pending=1 policy", "pending=2 policy", "pending=1"),
    "a policy of caches": ("by_head(budget=7, sink=2", "sink_recent(sink=2", "is of caches"),
    "no head": ("head.0.1", "attn.1", "names no head"),
}


@pytest.mark.parametrize(("old", "new", "reason"), BROKEN.values(), ids=BROKEN)
def test_plans_that_mean_nothing_are_refused(old: str, new: str, reason: str) -> None:
    text = HEAD + CHAIN
    assert old in text
    findings = verify_plan(parse_plan(text.replace(old, new)))
    assert any(reason in str(item) for item in findings), findings
    cached = HEAD.replace("cache target", "cache target policy=by_head(budget=7)")
    assert any("is of passes" in str(item) for item in verify_plan(parse_plan(cached + CHAIN)))


torch.set_num_threads(1)
