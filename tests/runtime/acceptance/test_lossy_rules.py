"""Lossy rules: the emitted distribution and its distance from the target's, by enumeration."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

from specplan.ir.tables.acceptance import LOSSY, RULE_ENTRIES
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.acceptance.typical import threshold
from tests.runtime import exact_ways
from tests.runtime.exact import (
    Case,
    Ways,
    accepted_chance,
    emitted_probabilities,
    mean_accepted,
    scenarios,
    target_probabilities,
    total_variation,
)
from tests.runtime.exact_checks import (
    CHAIN,
    JUDGING,
    TREE,
    P,
    Q,
    constant,
    decided,
    one_hot,
    random_probabilities,
)

HALF = Fraction(1, 2)
DECLARED = {rule.name: rule for rule in LOSSY if rule.needs_logits}
WAYS: dict[str, tuple[Ways, dict[str, Any]]] = {
    name: (JUDGING[name].WAYS, getattr(JUDGING[name], "PARAMETERS", {})) for name in DECLARED
}
"""Each rule with parameters at which it can be enumerated, and at which it loses something."""
TREES = [name for name, rule in DECLARED.items() if not rule.chain_only]


@pytest.mark.parametrize("rule", WAYS)
def test_every_draft_is_judged_as_the_papers_say(rule: str) -> None:
    ways, parameters = WAYS[rule]
    for seed in range(3):
        case = Case(CHAIN, random_probabilities(seed, 4), random_probabilities(seed + 50, 4))
        outcomes = decided(rule, case, ways, **parameters)
        lost = total_variation(
            emitted_probabilities(case, outcomes, 4), target_probabilities(case.target, 4)
        )
        assert 0 < lost < 1
    if rule in TREES:
        case = Case(TREE, random_probabilities(6), random_probabilities(7), distinct=False)
        decided(rule, case, ways, **parameters)


@pytest.mark.parametrize("rule", WAYS)
def test_dead_nodes_are_never_accepted(rule: str) -> None:
    ways, parameters = WAYS[rule]
    case = Case((-1, 0), random_probabilities(1), random_probabilities(2), dead=(0,))
    assert accepted_chance(decided(rule, case, ways, **parameters)) == 0


@pytest.mark.parametrize("rule", ["lenient", "typical"])
def test_nothing_is_lost_at_temperature_zero(rule: str) -> None:
    """A one-hot target passes its own choice alone (`top_beta`, `rollback` judge logits)."""
    ways, parameters = WAYS[rule]
    case = Case((-1, 0), one_hot(random_probabilities(3)), random_probabilities(4))
    outcomes = decided(rule, case, ways, **parameters)
    assert emitted_probabilities(case, outcomes, 3) == target_probabilities(case.target, 3)


def test_lenience_one_is_the_token_rule_and_less_of_it_accepts_more() -> None:
    """sum min(p / l, q) on the pair: .7, .9, 1, 1 (arXiv 2211.17192, appendix)."""
    case = Case((-1,), constant(P), constant(Q))
    for lenience, expected in ((1, 0.7), (HALF, 0.9), (Fraction(3, 10), 1), (Fraction(1, 10), 1)):
        ways = exact_ways.lenient_ways(Fraction(lenience))
        outcomes = decided("lenient", case, ways, lenience=float(lenience))
        assert float(accepted_chance(outcomes)) == pytest.approx(expected)
        probs = emitted_probabilities(case, outcomes, 1)
        assert all(probs[(x,)] <= p / lenience for x, p in enumerate(P))
        if lenience == 1:
            assert probs == target_probabilities(case.target, 1)


def test_what_each_rule_loses_on_the_pair_is_what_it_declares() -> None:
    """Total variation of the first token from the target, one token drafted, defaults."""
    every = {name: getattr(JUDGING[name], "DEFAULT", None) for name in DECLARED}
    defaults = {name: ways for name, ways in every.items() if ways is not None}
    lost: dict[str, list[float]] = {}
    for target, draft in ((P, Q), (Q, P)):
        case = Case((-1,), constant(target), constant(draft))
        for rule, ways in defaults.items():
            emitted = emitted_probabilities(case, decided(rule, case, ways), 1)
            distance = total_variation(emitted, target_probabilities(case.target, 1))
            lost.setdefault(rule, []).append(float(distance))
        p, q = (
            torch.tensor([*map(float, probs)], dtype=torch.float64) for probs in (target, draft)
        )
        lost.setdefault("all", []).append(float((p - q).abs().sum()) / 2)
    lossy = {rule.name: rule.loss for rule in LOSSY}
    assert all((rule.loss is None) == (rule.name not in lossy) for rule in RULE_ENTRIES)
    assert lost.keys() == lossy.keys()
    for rule, losses in lost.items():
        assert losses == pytest.approx(lossy[rule], abs=5e-7), rule


# Medusa's criterion at epsilon = .09, delta = .3; with the two swapped, as some functions of the
# released code have them, the thresholds become .0761, .0225, .0287 (github.com/FasterDecoding/
# Medusa, medusa/model/utils.py at e2a5d20).
TYPICAL = [
    ([0.97, 0.01, 0.01, 0.01], 0.09, 0.0761, [0]),
    ([0.25, 0.25, 0.25, 0.25], 0.075003, 0.0225, [0, 1, 2, 3]),
    ([0.5, 0.3, 0.15, 0.05], 0.09, 0.0287, [0, 1, 2]),
]


@pytest.mark.parametrize(("probs", "least", "swapped", "passing"), TYPICAL)
def test_golden_typical(
    probs: list[float], least: float, swapped: float, passing: list[int]
) -> None:
    row = torch.tensor(probs, dtype=torch.float64)
    assert float(threshold(row, 0.09, 0.3)) == pytest.approx(least, abs=1e-6)
    assert float(threshold(row, 0.3, 0.09)) == pytest.approx(swapped, abs=5e-5)
    tree = DraftedTree(torch.arange(4)[:, None], (-1,))
    judged = RULES["typical"].accept(tree, row.expand(4, 2, 4))
    assert judged.accepted.nonzero()[:, 0].tolist() == passing
    assert judged.bonus.tolist() == [0] * 4


def test_the_longest_path_wins_and_then_the_likeliest() -> None:
    """Two chains of two below the root and a third of one that is likelier: (2, 3) has .3 * .5."""
    probs = torch.tensor([0.5, 0.3, 0.2])
    target = probs.expand(1, 7, 3).log()
    tokens = torch.tensor([[2, 2, 1, 0, 0]])
    tree = DraftedTree(tokens, (-1, 0, -1, 2, -1))
    for rule, parameters in (("rollback", {}), ("top_beta", {}), ("typical", {})):
        rows = target.exp() if rule == "typical" else target
        judged = RULES[rule].accept(tree, rows[:, :6], **parameters)
        assert judged.path.tolist() == [[2, 3]], rule
    assert RULES["rollback"].accept(tree, target[:, :6], threshold=0.8).path.tolist() == [[4, -1]]


def test_argmax_lenience_is_top_beta_of_the_whole_vocabulary() -> None:
    """p(x) >= l max p: the sign is printed the other way round in arXiv 2211.17192's appendix."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(50, 2, 6, generator=generator)
    tokens = torch.randint(6, (50, 1), generator=generator)
    for lenience in (1.0, 0.5, 0.1):
        tolerance = float(-torch.tensor(lenience, dtype=torch.float64).log())
        judged = RULES["top_beta"].accept(
            DraftedTree(tokens, (-1,)), target, beta=6, tolerance=tolerance + 1e-6
        )
        probs = target[:, 0].softmax(-1)
        expected = probs.gather(1, tokens)[:, 0] >= lenience * probs.amax(-1) * (1 - 1e-6)
        assert torch.equal(judged.accepted > 0, expected)


def test_accepting_more_loses_more() -> None:
    """Looser parameters accept more, and what is lost grows with them."""
    case = Case((-1,), constant(P), constant(Q))
    expected = target_probabilities(case.target, 1)
    for family in (
        [exact_ways.lenient_ways(Fraction(1, n)) for n in (1, 2, 3, 10)],
        [exact_ways.passing_ways(exact_ways.not_too_unlikely(x)) for x in (1.3, 2.0, 5.0)],
        [exact_ways.passing_ways(exact_ways.among_the_first(n, 3.0)) for n in (2, 3, 4)],
    ):
        outcomes = [scenarios(case, ways) for ways in family]
        accepted = [mean_accepted(item) for item in outcomes]
        lost = [
            total_variation(emitted_probabilities(case, item, 1), expected) for item in outcomes
        ]
        assert accepted == sorted(accepted) and accepted[0] < accepted[-1]
        assert lost == sorted(lost) and lost[0] < lost[-1]
