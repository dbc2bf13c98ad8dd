"""Draft and target draw by races over the same numbers: lossless, and no draft matters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.ir import check_plan, parse_plan, verify_plan
from specplan.ir.plan import Plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, run, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.ir.plans_on_disk import text_of
from tests.plan_texts import drafted

CHAIN = """
  %t0 = root
  %v = uniform 9 stream=coupled key=position
  %c = repeat 4 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q how=shared by=%v
    yield %n
  }
"""
TREE = """
  %t0 = root
  %v = uniform 9 stream=coupled key=position
  %q0 = forward draft %t0 cache=@dkv pending=3
  %t1 = grow %t0 at=%t0 logits=%q0 children=3 how=shared by=%v
  %f1 = pick %t1 of=newest nodes=[0, 1]
  %q1 = forward draft %f1 cache=@dkv
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 1] how=shared by=%v
"""
JUDGE = "  %a = accept %c target=%l rule=gumbel by=%v\n"
ALONE = drafted(
    "  %c = root\n  %v = uniform 1 stream=coupled key=position", judge=JUDGE, draft=False
)
DRAFTED = {"chain": drafted(CHAIN, judge=JUDGE), "tree": drafted(TREE, judge=JUDGE)}
COUPLINGS = {
    "gumbel": str,
    "minhash": lambda text: text.replace("how=shared", "how=minhash").replace("gumbel", "minhash"),
}
coupled = pytest.mark.parametrize("coupling", COUPLINGS.values(), ids=COUPLINGS)


def plan(text: str) -> Plan:
    return check_plan(parse_plan(text))


def requests(count: int) -> list[Request]:
    return [
        Request(prompt_tokens=(3, 1, 4, seed % 50), max_new_tokens=24, temperature=1.0, seed=seed)
        for seed in range(count)
    ]


@coupled
def test_the_text_is_the_same_whatever_drafts_it(
    pair_folder: Path, coupling: Callable[[str], str]
) -> None:
    pair = load_pair(pair_folder)
    expected = run(plan(coupling(ALONE)), pair, requests(12))
    assert len(set(expected)) == 12
    for text in DRAFTED.values():
        assert run(plan(coupling(text)), pair, requests(12)) == expected
    itself = {"target": pair["target"], "draft": pair["target"]}
    assert run(plan(coupling(DRAFTED["chain"])), itself, requests(12)) == expected


def test_shared_numbers_accept_more_than_others_do(pair_folder: Path) -> None:
    pair = load_pair(pair_folder)
    own = DRAFTED["chain"].replace("rule=gumbel by=%v", "rule=gumbel by=%w")
    own = own.replace("  %a = ", "  %w = uniform 5 stream=accept\n  %a = ")
    rounds = [
        generate(EagerBackend().compile(plan(text), models), requests(12)).tokens_per_round
        for text, models in (
            (own, pair), (DRAFTED["chain"], pair),
            (DRAFTED["chain"], {"target": pair["target"], "draft": pair["target"]}),
        )
    ]  # fmt: skip
    assert rounds[0] < 0.8 * rounds[1] < rounds[1] < rounds[2]
    assert rounds[2] > 4.5  # a draft of the same law is always right


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("small_pair")
    save_pair(folder, VOCABULARY, scale=0.15)
    return load_pair(folder)


@coupled
def test_texts_have_the_targets_law(
    small_pair: dict[str, CausalModel], coupling: Callable[[str], str]
) -> None:
    expected = law_of_texts(small_pair["target"])
    assert p_value(plan(coupling(DRAFTED["chain"])), small_pair, expected) > 1e-4


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("rule=gumbel", "rule=token", "stream"),
        ("how=shared", "how=draw", "stream"),
        ("uniform 9", "uniform 3", "draws"),
        (" key=position", "", ""),
    ],
)
def test_only_races_share_numbers(old: str, new: str, rule: str) -> None:
    findings = verify_plan(parse_plan(DRAFTED["chain"].replace(old, new)))
    assert {item.rule for item in findings} - {"law"} == ({rule} if rule else set())


def test_numbers_of_later_positions_are_for_shared_races_alone() -> None:
    text = text_of("draft_chain").replace("stream=accept", "stream=accept key=position")
    findings = verify_plan(parse_plan(text))
    assert [item.rule for item in findings] == ["stream"]
    block = DRAFTED["chain"].replace("rule=gumbel by=%v", "rule=block by=%w")
    block = block.replace("  %a = ", "  %w = uniform 5 stream=accept\n  %a = ")
    assert [item.rule for item in verify_plan(parse_plan(block))] == ["stream"]
    assert verify_plan(parse_plan(block.replace(" key=position", ""))) == ()
