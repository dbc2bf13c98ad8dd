"""Acceptance rules: lossless by exact enumeration, golden values, vectorised equals reference."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.sampling import best, draw_distinct
from tests.runtime.exact import (
    Case,
    Law,
    Laws,
    accepted_chance,
    emitted_law,
    normalise,
    run,
    scenarios,
    target_law,
)

P = tuple(Fraction(n, 100) for n in (50, 30, 15, 5))
Q = tuple(Fraction(n, 100) for n in (25, 25, 40, 10))


def _constant(law: Law) -> Laws:
    return lambda context: law


def _random_laws(seed: int, vocabulary: int = 3, zeros: bool = False) -> Laws:
    """A law per context, with some zero entries on request."""
    known: dict[tuple[int, ...], Law] = {}

    def law(context: tuple[int, ...]) -> Law:
        if context not in known:
            random = Random(f"{seed}{context}")
            masses = [Fraction(random.randint(0 if zeros else 1, 6)) for _ in range(vocabulary)]
            masses[random.randrange(vocabulary)] += 1
            known[context] = normalise(masses)
        return known[context]

    return law


def _check(rule: str, case: Case, length: int) -> list[Any]:
    found = scenarios(case, as_a_block=rule == "block")
    assert sum(item.weight for item in found) == 1
    assert emitted_law(case, found, length) == target_law(case.target, length)
    for form in ("accept_reference", "accept", "accept_vectorised"):
        judged = run(getattr(RULES[rule], form, RULES[rule].accept), case, found)
        for row, item in enumerate(found):
            path = [node for node in judged.path[row].tolist() if node >= 0]
            assert (tuple(path), int(judged.bonus[row])) == (item.path, item.bonus), item
            assert int(judged.accepted[row]) == len(path)
    return found


CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0, 1)


@pytest.mark.parametrize("rule", ["token", "recursive", "block"])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_drawn_chain_is_lossless(rule: str, seed: int, zeros: bool) -> None:
    case = Case(CHAIN, _random_laws(seed, zeros=zeros), _random_laws(seed + 50, zeros=zeros))
    _check(rule, case, 4)


@pytest.mark.parametrize("rule", ["token", "recursive", "block"])
def test_point_chain_is_lossless(rule: str) -> None:
    points = {0: 2, 1: 0, 2: 1}
    _check(rule, Case(CHAIN, _random_laws(4), _random_laws(5), points=points), 4)


@pytest.mark.parametrize("rule", ["token", "recursive", "block"])
def test_chain_half_drawn_is_lossless(rule: str) -> None:
    case = Case(CHAIN, _random_laws(4), _random_laws(5), points={1: 0})
    _check(rule, case, 4)


def _mean_accepted(found: list[Any]) -> Fraction:
    return sum((item.weight * len(item.path) for item in found), Fraction(0))


def test_two_tokens_judged_as_a_block() -> None:
    """p = (1/3, 2/3) and q = (2/3, 1/3) at every context: 10/9 token by token, 11/9 as a block."""
    target = _constant((Fraction(1, 3), Fraction(2, 3)))
    case = Case((-1, 0), target, _constant((Fraction(2, 3), Fraction(1, 3))))
    assert _mean_accepted(_check("token", case, 3)) == Fraction(10, 9)
    assert _mean_accepted(_check("block", case, 3)) == Fraction(11, 9)


@pytest.mark.parametrize("seed", range(6))
def test_a_block_keeps_no_fewer_and_no_more_than_the_joint_laws_share(seed: int) -> None:
    """token <= block <= sum over lengths of sum min(p(x), q(x)), arXiv 2403.10444."""
    case = Case(CHAIN, _random_laws(seed), _random_laws(seed + 90))
    block = _mean_accepted(scenarios(case, as_a_block=True))
    bound = Fraction(0)
    for length in range(1, len(CHAIN) + 1):
        target, draft = (target_law(laws, length) for laws in (case.target, case.draft))
        shared = (min(mass, draft.get(x, Fraction(0))) for x, mass in target.items())
        bound += sum(shared, Fraction(0))
    assert _mean_accepted(scenarios(case)) <= block <= bound


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_drawn_tree_is_lossless(distinct: bool, zeros: bool) -> None:
    draft = _random_laws(7, zeros=zeros)
    _check("recursive", Case(TREE, _random_laws(6, zeros=zeros), draft, distinct=distinct), 3)


def test_tree_of_ranked_children_is_lossless() -> None:
    points = {0: 1, 1: 2, 2: 0, 3: 1, 4: 1}
    _check("recursive", Case(TREE, _random_laws(8), _random_laws(9), points=points), 3)


def test_ranked_among_drawn_siblings_is_lossless() -> None:
    _check("recursive", Case((-1, -1, -1), _random_laws(8), _random_laws(9), points={1: 1}), 2)


def test_more_children_than_support_is_lossless() -> None:
    """The uniform fallback, which the released code of Sequoia lacks."""
    draft = _constant((Fraction(1), Fraction(0), Fraction(0)))
    found = _check("recursive", Case((-1, -1, -1), _random_laws(3), draft), 2)
    assert accepted_chance(found) == 1


@pytest.mark.parametrize("rule", ["token", "recursive", "block"])
def test_dead_nodes_are_never_accepted(rule: str) -> None:
    case = Case(CHAIN, _random_laws(1), _random_laws(2), dead=(1,))
    found = _check(rule, case, 4)
    assert max(len(item.path) for item in found) == 1


@given(st.integers(0, 2**32 - 1))
def test_shapes_that_differ_by_row_are_as_deep_and_wide_as_the_largest(seed: int) -> None:
    random = Random(seed)
    size = random.randint(0, 9)
    shapes = [tuple(random.randint(-1, i - 1) for i in range(size)) for _ in range(3)]
    tokens = torch.zeros(3, size, dtype=torch.int64)
    alone = [DraftedTree(tokens, shape) for shape in shapes]
    both = DraftedTree(tokens, torch.tensor(shapes, dtype=torch.int64).view(3, size))
    assert both.depth == max(tree.depth for tree in alone)
    assert both.width == max(tree.width for tree in alone)


def test_dead_siblings_still_count_as_drawn() -> None:
    _check("recursive", Case((-1, -1, 0), _random_laws(1), _random_laws(2), dead=(0,)), 2)


def _one_hot(laws: Laws) -> Laws:
    def law(context: tuple[int, ...]) -> Law:
        found = laws(context)
        return tuple(Fraction(x == found.index(max(found))) for x in range(len(found)))

    return law


@pytest.mark.parametrize("rule", ["token", "recursive"])
def test_temperature_zero_target(rule: str) -> None:
    """A one-hot target law accepts exactly its own choice, however the draft was drawn."""
    target = _one_hot(_random_laws(3))
    for draft in (_random_laws(4), _one_hot(_random_laws(4))):
        for item in _check(rule, Case(CHAIN, target, draft), 4):
            context: tuple[int, ...] = ()
            for node in item.path:
                assert target(context)[item.tokens[node]] == 1
                context = (*context, item.tokens[node])


# Golden values: p = (.5, .3, .15, .05), q = (.25, .25, .4, .1); chance that one of k is accepted.
# Columns "RRS with replacement", "RRS without" and "top-k naive" of the table of recursive
# rejection sampling (definitions: MCSD, arXiv 2401.06706; Sequoia, arXiv 2402.12374).
GOLDEN = [
    (1, 0.7, 0.7, 0.15),
    (2, 0.825, 0.868056, 0.65),
    (3, 0.86875, 0.946780, 0.95),
    (4, 0.901562, 1.0, 1.0),
]


@pytest.mark.parametrize(("count", "replaced", "distinct", "ranked"), GOLDEN)
def test_golden_chances(count: int, replaced: float, distinct: float, ranked: float) -> None:
    parents = (-1,) * count
    for expected, flag in ((replaced, False), (distinct, True)):
        case = Case(parents, _constant(P), _constant(Q), distinct=flag)
        chance = accepted_chance(_check("recursive", case, 1))
        assert float(chance) == pytest.approx(expected, abs=1e-6)
    order = best(torch.tensor([[[float(mass) for mass in Q]]]), count)[0, 0].tolist()
    assert order == [2, 0, 1, 3][:count]
    case = Case(parents, _constant(P), _constant(Q), points=dict(enumerate(order)))
    assert float(accepted_chance(_check("recursive", case, 1))) == pytest.approx(ranked)


def test_sequoia_counter_example() -> None:
    """p = (1, 0), q = (.5, .5), two children: .75 with replacement, 1 without."""
    target, draft = (Fraction(1), Fraction(0)), (Fraction(1, 2), Fraction(1, 2))
    for distinct, expected in ((False, Fraction(3, 4)), (True, Fraction(1))):
        case = Case((-1, -1), _constant(target), _constant(draft), distinct=distinct)
        assert accepted_chance(_check("recursive", case, 1)) == expected


def test_expected_accepted_of_the_token_rule() -> None:
    """Context-free (1/3, 2/3) and (2/3, 1/3), two tokens: E = 10/9 (arXiv 2403.10444)."""
    target, draft = (Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3))
    found = _check("token", Case((-1, 0), _constant(target), _constant(draft)), 3)
    assert accepted_chance(found, 1) + accepted_chance(found, 2) == Fraction(10, 9)


def test_equal_laws_always_accept_and_disjoint_never() -> None:
    assert accepted_chance(_check("token", Case((-1,), _constant(P), _constant(P)), 1)) == 1
    target, draft = (Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))
    for rule in ("token", "recursive"):
        case = Case((-1,), _constant(target), _constant(draft))
        assert accepted_chance(_check(rule, case, 1)) == 0


@st.composite
def _random_trees(draw: st.DrawFn, chain: bool = False) -> tuple[Any, ...]:
    batch, count = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    vocabulary = draw(st.integers(2, 5))
    parents = tuple(node - 1 if chain else draw(st.integers(-1, node - 1)) for node in range(count))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    nodes = count + 1

    def laws() -> torch.Tensor:
        sharp = torch.randn(batch, nodes, vocabulary, generator=generator) * 3
        rows = sharp.softmax(-1)
        one_hot = torch.nn.functional.one_hot(rows.argmax(-1), vocabulary).to(rows.dtype)
        cold = torch.rand(batch, generator=generator) < 0.3
        return torch.where(cold[:, None, None], one_hot, rows)

    kind = draw(st.sampled_from(["point", "drawn", "mixed"]))
    index = [parent + 1 for parent in parents]
    if kind == "mixed":
        index = [row if draw(st.booleans()) else -1 for row in index]
    tokens = torch.randint(vocabulary, (batch, count), generator=generator)
    tree = DraftedTree(
        tokens,
        parents,
        live=torch.rand(batch, count, generator=generator) < 0.85,
        laws=None if kind == "point" else laws(),
        law_index=None if kind == "point" else tuple(index),
        distinct=draw(st.booleans()) and _siblings_differ(tokens, parents),
    )
    return tree, laws(), torch.rand(batch, nodes, dtype=torch.float64, generator=generator)


def _siblings_differ(tokens: torch.Tensor, parents: tuple[int, ...]) -> bool:
    """Draws without replacement never repeat a token, those that were not needed included."""
    families = [[n for n, p in enumerate(parents) if p == parent] for parent in set(parents)]
    return all(len(set(row[f].tolist())) == len(f) for row in tokens for f in families)


def _equal(rule: str, case: tuple[Any, ...], *functions: str) -> None:
    tree, target, uniforms = case
    expected = RULES[rule].accept_reference(tree, target, uniforms)
    dynamic = DraftedTree(
        tree.tokens,
        tree.parent_tensor(),
        tree.live,
        tree.laws,
        None if tree.law_index is None else tree.law_tensor(),
        tree.distinct,
    )
    for function in functions:
        for form in (tree, dynamic):
            found = getattr(RULES[rule], function)(form, target, uniforms)
            width = expected.path.shape[1]
            assert torch.equal(found.path[:, :width], expected.path)
            assert torch.equal(found.accepted, expected.accepted)
            assert torch.equal(found.bonus, expected.bonus)


@settings(max_examples=150)
@given(case=_random_trees())
def test_recursive_equals_reference(case: tuple[Any, ...]) -> None:
    _equal("recursive", case, "accept", "accept_vectorised")


@settings(max_examples=100)
@given(case=_random_trees(chain=True))
def test_block_equals_reference(case: tuple[Any, ...]) -> None:
    _equal("block", case, "accept")


@settings(max_examples=100)
@given(case=_random_trees(chain=True))
def test_token_equals_reference_and_recursive(case: tuple[Any, ...]) -> None:
    _equal("token", case, "accept")
    tree, target, uniforms = case
    token = RULES["token"].accept(tree, target, uniforms)
    recursive = RULES["recursive"].accept(tree, target, uniforms)
    assert torch.equal(token.path, recursive.path)


@settings(max_examples=100)
@given(case=_random_trees())
def test_greedy_equals_reference(case: tuple[Any, ...]) -> None:
    _equal("greedy", case, "accept", "accept_vectorised")


@settings(max_examples=60)
@given(case=_random_trees())
def test_greedy_is_recursive_at_temperature_zero(case: tuple[Any, ...]) -> None:
    tree, target, uniforms = case
    tree = replace(tree, distinct=False)  # siblings may repeat here, as independent draws do
    one_hot = torch.nn.functional.one_hot(target.argmax(-1), target.shape[2]).to(target.dtype)
    greedy = RULES["greedy"].accept(tree, target)
    recursive = RULES["recursive"].accept(tree, one_hot, uniforms)
    assert torch.equal(greedy.path, recursive.path)
    assert torch.equal(greedy.bonus, recursive.bonus)


def test_rows_do_not_depend_on_batch_mates() -> None:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, (5, 5), generator=generator)
    laws, target = torch.randn(2, 5, 6, 4, generator=generator).softmax(-1)
    uniforms = torch.rand(5, 6, generator=generator, dtype=torch.float64)
    tree = DraftedTree(tokens, TREE, laws=laws, law_index=(0, 0, 1, 1, 2))
    together = RULES["recursive"].accept(tree, target, uniforms)
    for row in range(5):
        one = slice(row, row + 1)
        alone = DraftedTree(tokens[one], TREE, laws=laws[one], law_index=(0, 0, 1, 1, 2))
        judged = RULES["recursive"].accept(alone, target[one], uniforms[one])
        assert torch.equal(judged.path, together.path[one])
        assert torch.equal(judged.bonus, together.bonus[one])


def test_registry_is_the_folder() -> None:
    assert sorted(RULES) == ["block", "greedy", "recursive", "token"]
    assert [RULES[name].TARGET for name in sorted(RULES)] == ["law", "logits", "law", "law"]


def test_draw_distinct_and_rule_agree_on_the_draft_law() -> None:
    """Drawn children of a whole law use up its support, so some child must be accepted."""
    generator = torch.Generator().manual_seed(2)
    laws = torch.randn(64, 1, 4, generator=generator).softmax(-1)
    target = torch.randn(64, 5, 4, generator=generator).softmax(-1)
    tokens = draw_distinct(laws, torch.rand(64, 1, 4, generator=generator))[:, 0]
    tree = DraftedTree(tokens, (-1,) * 4, laws=laws, law_index=(0,) * 4)
    uniforms = torch.rand(64, 5, generator=generator, dtype=torch.float64)
    assert (RULES["recursive"].accept(tree, target, uniforms).accepted == 1).all()
