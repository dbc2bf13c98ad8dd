"""Lossless rules: the emitted distribution by exact enumeration, golden values, bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from math import exp, prod

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from specplan.ir.tables.acceptance import LOSSLESS
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.acceptance.k_seq import acceptance_level
from specplan.runtime.sampling import best, draw_distinct
from tests.runtime.exact import (
    Case,
    Probabilities,
    accepted_chance,
    mean_accepted,
    scenarios,
    target_probabilities,
)
from tests.runtime.exact_checks import (
    CHAIN,
    TREE,
    WAYS,
    P,
    Q,
    constant,
    lossless,
    one_hot,
    random_probabilities,
)

CHAIN_RULES = sorted(WAYS)
DECLARED = {rule.name: rule for rule in LOSSLESS}
TREE_RULES = [name for name in CHAIN_RULES if not DECLARED[name].chain_only]
ANY_TREE = [name for name in TREE_RULES if not DECLARED[name].children]


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_drawn_chain_is_lossless(rule: str, seed: int, zeros: bool) -> None:
    case = Case(
        CHAIN, random_probabilities(seed, zeros=zeros), random_probabilities(seed + 50, zeros=zeros)
    )
    lossless(rule, case, 4)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_point_chain_is_lossless(rule: str) -> None:
    points = {0: 2, 1: 0, 2: 1}
    lossless(rule, Case(CHAIN, random_probabilities(4), random_probabilities(5), points=points), 4)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_chain_half_drawn_is_lossless(rule: str) -> None:
    lossless(rule, Case(CHAIN, random_probabilities(4), random_probabilities(5), points={1: 0}), 4)


def test_two_tokens_judged_as_a_block() -> None:
    """p = (1/3, 2/3) and q = (2/3, 1/3) at every context: 10/9 token by token, 11/9 as a block."""
    target = constant((Fraction(1, 3), Fraction(2, 3)))
    case = Case((-1, 0), target, constant((Fraction(2, 3), Fraction(1, 3))))
    assert mean_accepted(lossless("token", case, 3)) == Fraction(10, 9)
    assert mean_accepted(lossless("block", case, 3)) == Fraction(11, 9)


@pytest.mark.parametrize("seed", range(6))
def test_a_block_keeps_no_fewer_and_no_more_than_the_joint_laws_share(seed: int) -> None:
    """token <= block <= sum over lengths of sum min(p(x), q(x)), arXiv 2403.10444."""
    case = Case(CHAIN, random_probabilities(seed), random_probabilities(seed + 90))
    block = mean_accepted(scenarios(case, WAYS["block"]))
    bound = Fraction(0)
    for length in range(1, len(CHAIN) + 1):
        target, draft = (target_probabilities(probs, length) for probs in (case.target, case.draft))
        shared = (min(mass, draft.get(x, Fraction(0))) for x, mass in target.items())
        bound += sum(shared, Fraction(0))
    assert mean_accepted(scenarios(case, WAYS["token"])) <= block <= bound


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_drawn_tree_is_lossless(distinct: bool, zeros: bool) -> None:
    draft = random_probabilities(7, zeros=zeros)
    lossless(
        "recursive", Case(TREE, random_probabilities(6, zeros=zeros), draft, distinct=distinct), 3
    )


@pytest.mark.parametrize("rule", ["deterministic", "naive"])
@pytest.mark.parametrize("distinct", [False, True])
def test_drawn_tree_taken_as_given_is_lossless(rule: str, distinct: bool) -> None:
    probs = random_probabilities(6, zeros=True), random_probabilities(7, zeros=True)
    lossless(rule, Case((-1, -1, 0, 1), *probs, distinct=distinct), 3)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("parents", "vocabulary"), [((-1, -1, 0), 3), ((-1, -1, -1, 0, 0), 2)])
def test_tree_of_independent_draws_scanned_under_one_level_is_lossless(
    parents: tuple[int, ...], vocabulary: int, zeros: bool
) -> None:
    probs = (random_probabilities(seed, vocabulary, zeros) for seed in (6, 7))
    lossless("k_seq", Case(parents, *probs, distinct=False), 3)


@pytest.mark.parametrize("rule", ANY_TREE)
def test_tree_of_ranked_children_is_lossless(rule: str) -> None:
    points = {0: 1, 1: 2, 2: 0, 3: 1, 4: 1}
    lossless(rule, Case(TREE, random_probabilities(8), random_probabilities(9), points=points), 3)


@pytest.mark.parametrize("rule", ANY_TREE)
def test_ranked_among_drawn_siblings_is_lossless(rule: str) -> None:
    lossless(
        rule, Case((-1, -1, -1), random_probabilities(8), random_probabilities(9), points={1: 1}), 2
    )


@pytest.mark.parametrize("rule", ANY_TREE)
def test_more_children_than_support_is_lossless(rule: str) -> None:
    """The uniform fallback, which the released code of Sequoia lacks."""
    draft = constant((Fraction(1), Fraction(0), Fraction(0)))
    outcomes = lossless(rule, Case((-1, -1, -1), random_probabilities(3), draft), 2)
    assert accepted_chance(outcomes) == 1


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_dead_nodes_are_never_accepted(rule: str) -> None:
    outcomes = lossless(
        rule, Case(CHAIN, random_probabilities(1), random_probabilities(2), dead=(1,)), 4
    )
    assert max(len(item.path) for item in outcomes) == 1


@pytest.mark.parametrize("rule", TREE_RULES)
def test_dead_siblings_still_count_as_drawn(rule: str) -> None:
    case = Case(
        (-1, -1, 0), random_probabilities(1), random_probabilities(2), rule in ANY_TREE, dead=(0,)
    )
    lossless(rule, case, 2)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_temperature_zero_target(rule: str) -> None:
    """A one-hot target distribution accepts exactly its own choice, however the draft was drawn."""
    target = one_hot(random_probabilities(3))
    for draft in (random_probabilities(4), one_hot(random_probabilities(4))):
        for item in lossless(rule, Case(CHAIN, target, draft), 4):
            context: tuple[int, ...] = ()
            for node in item.path:
                assert target(context)[item.tokens[node]] == 1
                context = (*context, item.tokens[node])


def chance(
    rule: str, count: int, target: Probabilities, draft: Probabilities, *, distinct: bool = False
) -> Fraction:
    """Probability that one of `count` drawn children is accepted."""
    case = Case((-1,) * count, constant(target), constant(draft), distinct=distinct)
    return accepted_chance(scenarios(case, WAYS[rule]))


def optimum(
    count: int, target: Probabilities, draft: Probabilities, *, distinct: bool = False
) -> float:
    """What no lossless rule exceeds: the largest chance to emit one of the candidates.

    The linear programme of optimal transport with membership cost (SpecTr, arXiv 2310.15141):
    couple the distribution of `count` candidates with the target's so that most lies on their
    members.
    """
    size = len(target)
    drawn = list(
        permutations(range(size), count) if distinct else product(range(size), repeat=count)
    )
    odds = [_chance_of(draft, tokens, distinct) for tokens in drawn]
    pairs = [(i, y) for i, tokens in enumerate(drawn) for y in sorted(set(tokens))]
    rows = torch.zeros(len(drawn) + size, len(pairs), dtype=torch.float64)
    for place, (i, y) in enumerate(pairs):
        rows[i, place] = rows[len(drawn) + y, place] = 1.0
    limits = [*map(float, odds), *map(float, target)]
    solution = linprog([-1.0] * len(pairs), A_ub=rows.numpy(), b_ub=limits, method="highs")
    return -float(solution.fun)


def _chance_of(draft: Probabilities, tokens: tuple[int, ...], distinct: bool) -> Fraction:
    if not distinct:
        return prod((draft[x] for x in tokens), start=Fraction(1))
    left, odds = Fraction(1), Fraction(1)
    for token in tokens:
        odds *= draft[token] / left if left else Fraction(0)
        left -= draft[token]
    return odds


# p = (.5, .3, .15, .05), q = (.25, .25, .4, .1); chance that one of k children is accepted.
# Columns: recursive rejection with and without replacement, K-SEQ's level and chance, naive
# sampling, the k best ranks taken as given, and the optimum for independent candidates.
# Definitions: MCSD, arXiv 2401.06706; Sequoia, arXiv 2402.12374; SpecTr, arXiv 2310.15141.
GOLDEN = [
    (1, 0.7, 0.7, 1.0, 0.7, 0.265, 0.15, 0.7),
    (2, 0.825, 0.868056, 1.390388, 0.847597, 0.4555, 0.65, 0.9375),
    (3, 0.86875, 0.946780, 1.645012, 0.911253, 0.59365, 0.95, 1.0),
    (4, 0.901562, 1.0, 1.800869, 0.950217, 0.69463, 1.0, 1.0),
]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"k={row[0]}")
def test_golden_chances(row: tuple[float, ...]) -> None:
    count = int(row[0])
    replaced, distinct, level, scanned, naive, ranked, most = row[1:]
    near = {"recursive": replaced, "k_seq": scanned, "naive": naive}
    for rule, expected in near.items():
        case = Case((-1,) * count, constant(P), constant(Q), distinct=False)
        # four children: enumerated alone, as 256 drafts through every form of a rule take long
        outcomes = lossless(rule, case, 1) if count < 4 else scenarios(case, WAYS[rule])
        assert float(accepted_chance(outcomes)) == pytest.approx(expected, abs=6e-7), rule
    case = Case((-1,) * count, constant(P), constant(Q))
    outcomes = lossless("recursive", case, 1)
    assert float(accepted_chance(outcomes)) == pytest.approx(distinct, abs=6e-7)
    p, q = (
        torch.tensor([[float(mass) for mass in probs]], dtype=torch.float64) for probs in (P, Q)
    )
    assert float(acceptance_level(p, q, torch.tensor([[count]]))) == pytest.approx(level, abs=6e-7)
    order = best(q[None], count)[0, 0].tolist()
    assert order == [2, 0, 1, 3][:count]
    case = Case((-1,) * count, constant(P), constant(Q), points=dict(enumerate(order)))
    for rule in ANY_TREE:
        assert float(accepted_chance(lossless(rule, case, 1))) == pytest.approx(ranked)
    assert optimum(count, P, Q) == pytest.approx(most, abs=1e-9)


masses_of_three = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)


@settings(max_examples=15, deadline=None)
@given(masses_of_three, masses_of_three)
def test_more_children_are_better_and_the_optimum_is_never_exceeded(
    target: list[int], draft: list[int]
) -> None:
    p, q = (tuple(Fraction(x, sum(masses)) for x in masses) for masses in (target, draft))
    most = [optimum(count, p, q) for count in (1, 2, 3)]
    for rule in ("recursive", "k_seq", "naive", "deterministic"):
        chances = [float(chance(rule, count, p, q)) for count in (1, 2, 3)]
        for count, accepted in enumerate(chances):
            assert accepted <= most[count] + 1e-9, rule
            assert accepted >= max(chances[:count], default=0.0) - 1e-9, rule
            if rule == "k_seq":
                assert accepted >= (1 - exp(-1)) * most[count] - 1e-9
    last = 0.0
    for count in range(1, sum(x > 0 for x in q) + 1):
        accepted = float(chance("recursive", count, p, q, distinct=True))
        assert accepted >= max(last, float(chance("recursive", count, p, q))) - 1e-12
        assert accepted <= optimum(count, p, q, distinct=True) + 1e-9
        last = accepted


@settings(max_examples=20, deadline=None)
@given(masses_of_three)
def test_equal_laws_always_accept_and_disjoint_never(masses: list[int]) -> None:
    probs = tuple(Fraction(x, sum(masses)) for x in masses)
    for rule in ("token", "recursive", "block", "k_seq"):
        assert chance(rule, 1, probs, probs) == 1, rule
    assert float(chance("k_seq", 2, probs, probs)) == pytest.approx(1.0, abs=1e-9)
    assume(0 in masses)
    other = tuple(Fraction(x == 0) / masses.count(0) for x in masses)
    for rule in CHAIN_RULES:
        assert chance(rule, 1, probs, other) == 0, rule
    for rule in ("recursive", "k_seq", "naive"):
        assert chance(rule, 2, probs, other) == 0, rule


def test_sequoia_counter_example() -> None:
    """p = (1, 0), q = (.5, .5), two children: .75 with replacement and by K-SEQ, 1 without."""
    target, draft = (Fraction(1), Fraction(0)), (Fraction(1, 2), Fraction(1, 2))
    assert chance("recursive", 2, target, draft) == Fraction(3, 4)
    assert chance("recursive", 2, target, draft, distinct=True) == 1
    # p / (r q) = 4/3 for the level r = 3/2: bisected, so to 2^-40
    assert float(chance("k_seq", 2, target, draft)) == pytest.approx(0.75, abs=1e-9)


def test_expected_accepted_of_the_token_rule() -> None:
    """Context-free (1/3, 2/3) and (2/3, 1/3), two tokens: E = 10/9 (arXiv 2403.10444)."""
    target, draft = (Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3))
    outcomes = lossless("token", Case((-1, 0), constant(target), constant(draft)), 3)
    assert accepted_chance(outcomes, 1) + accepted_chance(outcomes, 2) == Fraction(10, 9)


def test_the_drafts_law_taken_for_a_ranked_child_loses_the_target() -> None:
    """Draft & Verify's released code: p = (.5, .5), q = (.9, .1) emits (.5556, .4444)."""
    target, draft = torch.tensor([[0.5, 0.5]] * 2), torch.tensor([[0.9, 0.1]])
    emitted = torch.zeros(2)
    for index in range(90):
        uniforms = torch.tensor([[(index + 0.5) / 90, 0.3]])
        tree = DraftedTree(torch.tensor([[0]]), (-1,), probs=draft[None], probs_index=(0,))
        judged = RULES["token"].accept(tree, target[None], uniforms)
        emitted[0 if int(judged.accepted) else int(judged.bonus)] += 1 / 90
    assert emitted.tolist() == pytest.approx([5 / 9, 4 / 9], abs=1e-5)


def test_draw_distinct_and_rule_agree_on_the_draft_law() -> None:
    """Drawn children of a whole distribution use up its support, so some child must be accepted."""
    generator = torch.Generator().manual_seed(2)
    probs = torch.randn(64, 1, 4, generator=generator).softmax(-1)
    target = torch.randn(64, 5, 4, generator=generator).softmax(-1)
    tokens = draw_distinct(probs, torch.rand(64, 1, 4, generator=generator))[:, 0]
    tree = DraftedTree(tokens, (-1,) * 4, probs=probs, probs_index=(0,) * 4)
    uniforms = torch.rand(64, 5, generator=generator, dtype=torch.float64)
    assert (RULES["recursive"].accept(tree, target, uniforms).accepted == 1).all()
