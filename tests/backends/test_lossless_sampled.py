"""Sampled output follows the target's distribution, as counted over many texts.

Each acceptance rule is also enumerated exactly (`tests/runtime`); that draws depend on the seed
alone is asserted in `test_every_plan.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specplan.ir.ops import Accept, Graft, Grow
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.values import Entry
from specplan.planner.facts import ProblemFacts
from specplan.runtime.models.causal import CausalModel
from tests.backends.dynamic_trees import dynamic_plan
from tests.backends.heads import with_heads
from tests.backends.kinds import LOSSLESS, Kind, all_facts, every_kind, kinds_of
from tests.backends.pairs import load_pair, plain, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value

SEEDS = 1500
"""Texts drawn with each plan: enough to notice a rule that is wrong now and then (below)."""
CHANCE = 1e-4
"""Of a fair plan to be called unfair; seeds are fixed, so that it either is or is not."""


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("small_pair")
    save_pair(folder, VOCABULARY, scale=0.3)
    return with_heads(load_pair(folder))


@pytest.fixture(scope="module")
def exact_law(small_pair: dict[str, CausalModel]) -> np.ndarray:
    return law_of_texts(small_pair["target"])


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ProblemFacts:
    return all_facts(tmp_path_factory.mktemp("every_method"), 0.8, VOCABULARY)


def test_plain_decoding_has_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray
) -> None:
    assert p_value(plain(greedy=False), small_pair, exact_law, SEEDS) > CHANCE


def judging(plan: Plan) -> frozenset[str]:
    """What makes tokens follow the target: rules, draws of drafts, whether trees are joined."""
    ops = [*walk_plan(plan)]
    rules = {f"rule={op.rule.name}" for op in ops if isinstance(op, Accept)}
    draws = {f"how={op.how}" for op in ops if isinstance(op, Grow)}
    return frozenset(rules | draws | {op.keyword for op in ops if isinstance(op, Graft)})


def test_every_rule_and_way_of_drawing_keeps_the_targets_distribution(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, facts: ProblemFacts
) -> None:
    """One plan of each pair that methods use, the one of the most ops.

    Trees have few children: a node has no more than there are tokens.
    """
    pairs: dict[frozenset[str], Kind] = {}
    for method in LOSSLESS.values():
        for kind in kinds_of(method, facts, most=VOCABULARY):
            known = pairs.setdefault(judging(kind.plan), kind)
            if len([*walk_plan(kind.plan)]) > len([*walk_plan(known.plan)]):
                pairs[judging(kind.plan)] = kind
    assert len(pairs) >= 8
    for pair, (words, plan, _) in pairs.items():
        assert p_value(plan, small_pair, exact_law, SEEDS) > CHANCE, (sorted(pair), words)


@pytest.mark.long
@pytest.mark.parametrize("name", LOSSLESS)
def test_every_method_has_the_targets_law(
    name: str,
    small_pair: dict[str, CausalModel],
    exact_law: np.ndarray,
    facts: ProblemFacts,
) -> None:
    """Every kind of its plans."""
    kinds = [*kinds_of(LOSSLESS[name], facts, most=VOCABULARY)]
    assert kinds
    for words, plan, _ in kinds:
        assert p_value(plan, small_pair, exact_law, SEEDS) > CHANCE, words


def test_a_rule_that_changes_the_law_a_little_is_noticed(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, facts: ProblemFacts
) -> None:
    """Tokens that the draft likes are taken a quarter more often than they may be."""
    texts = [print_plan(plan) for _, plan, _ in kinds_of(LOSSLESS["draft_model"], facts)]
    text = next(text for text in texts if "rule=token" in text)
    bent = parse_plan(text.replace("rule=token", "rule=lenient(lenience=0.8)"))
    bent = replace(bent, assumptions=replace(bent.assumptions, law=Entry("free")))
    assert p_value(bent, small_pair, exact_law, SEEDS) < CHANCE


@pytest.mark.long
def test_chains_judged_as_a_block_have_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    texts = [print_plan(plan) for _, plan in every_kind(tmp_path, 0.8, 4)]
    chains = [text for text in texts if "rule=token" in text]
    assert len(chains) >= 4
    for text in chains[:4]:
        plan = parse_plan(text.replace("rule=token", "rule=block"))
        assert p_value(plan, small_pair, exact_law, SEEDS) > CHANCE


@pytest.mark.parametrize("setting", [(2, 3, 4), (3, 2, 5), (2, 1, 2)])
def test_trees_that_differ_by_request_have_the_targets_law(
    setting: tuple[int, int, int], small_pair: dict[str, CausalModel], exact_law: np.ndarray
) -> None:
    plan = dynamic_plan(*setting, greedy=False)
    assert p_value(plan, small_pair, exact_law, SEEDS) > CHANCE


def test_a_wrong_law_is_noticed(small_pair: dict[str, CausalModel], exact_law: np.ndarray) -> None:
    wrong = 0.9 * exact_law + 0.1 * exact_law[::-1]
    assert p_value(plain(greedy=False), small_pair, wrong, SEEDS) < CHANCE
