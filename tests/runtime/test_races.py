"""Races and the rule `gumbel`: exact distributions, chance to agree, no draft matters."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.races import consistent, drawn_alike, exponentials, race, steps
from specplan.runtime.uniforms import uniforms
from tests.runtime.exact import (
    Case,
    Probabilities,
    Scenario,
    accepted_chance,
    emitted_probabilities,
    path_tokens,
    target_probabilities,
)
from tests.runtime.exact_checks import P, Q, agrees, random_probabilities
from tests.runtime.exact_races import outcomes

SHAPES = [(-1, 0), (-1, -1, 0)]


def shared_scenarios(case: Case) -> Iterator[Scenario]:
    """All outcomes where siblings are the first of the draft's race, one number per depth.

    Siblings follow one another; at each depth one race is run by the draft's distributions at the
    nodes that have children, and by the target's at all nodes.
    """
    depths = [0]
    for parent in case.parents:
        depths.append(depths[parent + 1] + 1)

    def grow(
        level: int,
        weight: Fraction,
        tokens: dict[int, int],
        chosen: dict[int, int],
        used: list[Fraction],
    ) -> Iterator[Scenario]:
        here = [node - 1 for node, depth in enumerate(depths) if depth == level]
        if not here:
            yield _judged(case, weight, tokens, chosen, used)
            return
        drafted = tuple(tokens.get(node, 0) for node in range(len(case.parents)))
        below = {n: [c for c, parent in enumerate(case.parents) if parent == n] for n in here}
        contexts = {node: path_tokens(case, drafted, node) for node in here}
        races = [(case.target(contexts[node]), 1) for node in here]
        races += [(case.draft(contexts[n]), len(below[n])) for n in here if below[n]]
        for chance, orders, number in outcomes(races):
            now = {node: order[0] for node, order in zip(here, orders, strict=False)}
            new = [token for order in orders[len(here) :] for token in order]
            grown = zip((c for n in here for c in below[n]), new, strict=True)
            yield from grow(
                level + 1, weight * chance, tokens | dict(grown), chosen | now, [*used, number]
            )

    return grow(0, Fraction(1), {}, {}, [])


def _judged(
    case: Case,
    weight: Fraction,
    tokens: dict[int, int],
    chosen: dict[int, int],
    used: list[Fraction],
) -> Scenario:
    path: list[int] = []
    while True:
        here = path[-1] if path else -1
        children = [n for n, parent in enumerate(case.parents) if parent == here]
        hit = next((n for n in children if tokens[n] == chosen[here]), None)
        if hit is None:
            break
        path.append(hit)
    rest = [Fraction(1, 3)] * (len(case.parents) + 1 - len(used))
    drafted = tuple(tokens[node] for node in range(len(case.parents)))
    return Scenario(weight, drafted, (*used, *rest), tuple(path), chosen[here])


@pytest.mark.parametrize("parents", SHAPES)
def test_shared_randomness_is_lossless(parents: tuple[int, ...]) -> None:
    case = Case(parents, random_probabilities(1), random_probabilities(2))
    shared = list(shared_scenarios(case))
    assert sum(item.weight for item in shared) == 1
    agrees("gumbel", case, shared)
    assert emitted_probabilities(case, shared, 3) == target_probabilities(case.target, 3)


def test_the_first_of_a_race_are_draws_without_replacement() -> None:
    for probs in ((Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)), (Fraction(1, 3),) * 3):
        for chance, ((first, second),), _ in outcomes([(probs, 2)]):
            assert chance == probs[first] * probs[second] / (1 - probs[first])
    alone = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    times = exponentials(torch.arange(1 << 12, dtype=torch.float64) / (1 << 12), 3)
    order = race(alone.expand_as(times), times, 3)
    assert (order[:, 0] == 1).all() and (order.sort(1).values == torch.arange(3)).all()
    assert abs(float((order[:, 1] == 0).double().mean()) - 0.5) < 0.04


def coupled(p: Probabilities, q: Probabilities) -> Fraction:
    """Chance that one race gives the same token under both distributions (arXiv 2408.07978)."""
    return sum(
        (
            1 / sum(max(b / a, d / c) for b, d in zip(p, q, strict=True))
            for a, c in zip(p, q, strict=True)
            if a and c
        ),
        Fraction(0),
    )


masses = st.lists(st.integers(1, 6), min_size=3, max_size=3)


@settings(max_examples=15, deadline=None)
@given(masses, masses)
def test_one_child_is_accepted_by_the_papers_chance(one: list[int], other: list[int]) -> None:
    p, q = (tuple(Fraction(x, sum(probs)) for x in probs) for probs in (one, other))
    shared = list(shared_scenarios(Case((-1,), lambda context: p, lambda context: q)))
    distance = sum((abs(a - b) for a, b in zip(p, q, strict=True)), Fraction(0)) / 2
    assert accepted_chance(shared) == coupled(p, q)
    assert (1 - distance) / (1 + distance) <= coupled(p, q) <= 1 - distance


def test_golden_chance_of_the_coupling() -> None:
    """p = (.5, .3, .15, .05), q = (.25, .25, .4, .1): the formula, and the rule on many numbers."""
    expected = float(coupled(P, Q))
    assert coupled(P, Q) == Fraction(139, 210)
    numbers = uniforms(list(range(40_000)), "accept", [7] * 40_000, 0, 2)
    both = torch.tensor([[float(x) for x in probs] for probs in (P, Q)], dtype=torch.float64)
    drafted = race(both[1].expand(40_000, 4), exponentials(numbers[:, 0], 4))
    judged = RULES["gumbel"].accept(
        DraftedTree(drafted, (-1,)), both[0].expand(40_000, 2, 4), numbers
    )
    assert float(judged.accepted.double().mean()) == pytest.approx(expected, abs=0.01)
    emitted = torch.where(judged.accepted > 0, drafted[:, 0], judged.bonus).bincount(minlength=4)
    assert chisquare(emitted.numpy(), 40_000 * both[0].numpy()).pvalue > 1e-4


def test_minhash_agrees_as_often_as_distributions_overlap() -> None:
    """Weighted MinHash of p and q: laws, rest of a draw, agreement, the forms of its rule."""
    numbers = uniforms(list(range(40_000)), "accept", [7] * 40_000, 0, 2)
    p, q = (torch.tensor([float(x) for x in probs], dtype=torch.float64) for probs in (P, Q))
    ranked = drawn_alike("minhash", q.expand(40_000, 4), numbers[:, 0], 2)
    pairs = (ranked[:, 0] * 4 + ranked[:, 1]).bincount(minlength=16)
    without = (q[:, None] * q / (1 - q[:, None])).fill_diagonal_(0).flatten()
    assert chisquare(pairs[without > 0].numpy(), 40_000 * without[without > 0]).pvalue > 1e-4
    drafted, target = ranked[:, :1], p.expand(40_000, 2, 4)
    tree = DraftedTree(drafted, (-1,))
    judged = RULES["minhash"].accept(tree, target, numbers)
    overlap = float(torch.minimum(p, q).sum() / torch.maximum(p, q).sum())
    agreed = float(judged.accepted.double().mean())
    assert overlap - 0.01 < agreed < 1 - float((p - q).abs().sum()) / 2
    emitted = torch.where(judged.accepted > 0, drafted[:, 0], judged.bonus).bincount(minlength=4)
    assert chisquare(emitted.numpy(), 40_000 * p.numpy()).pvalue > 1e-4
    for form in (RULES["minhash"].accept_vectorised, RULES["minhash"].accept_reference):
        other = form(DraftedTree(drafted[:500], (-1,)), target[:500], numbers[:500])
        assert torch.equal(other.accepted, judged.accepted[:500])
        assert torch.equal(other.bonus, judged.bonus[:500])


def test_minhash_keeps_to_the_support() -> None:
    alone = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    noise = steps(torch.arange(1 << 12, dtype=torch.float64) / (1 << 12), 3)
    order = consistent(alone.expand(1 << 12, 3), noise, 3)
    assert (order[:, 0] == 1).all() and (order.sort(1).values == torch.arange(3)).all()
    assert abs(float((order[:, 1] == 0).double().mean()) - 0.5) < 0.04


def test_hashed_times_are_exponential_and_independent() -> None:
    numbers = uniforms(list(range(4000)), "noise", [3] * 4000, 0, 1)[:, 0]
    times = exponentials(numbers, 64)
    assert (times > 0).all() and times.isfinite().all()
    assert kstest(times[:, ::7].flatten().numpy(), "expon").pvalue > 1e-4
    correlations = torch.corrcoef(times.T) - torch.eye(64, dtype=torch.float64)
    assert float(correlations.abs().max()) < 5 / 4000**0.5
    nearby = exponentials(torch.tensor([0.25, 0.25 + 2.0**-53], dtype=torch.float64), 1000)
    assert abs(float(torch.corrcoef(nearby)[0, 1])) < 0.15


def test_the_emitted_tokens_do_not_depend_on_the_draft() -> None:
    """Whatever is drafted, the text begins with what the target draws by these numbers."""
    generator = torch.Generator().manual_seed(3)
    target = torch.rand(200, 4, 5, generator=generator).softmax(-1)
    target[:, 1:] = target[:, :1]  # the same in every context, so that texts can be compared
    numbers = torch.rand(200, 4, dtype=torch.float64, generator=generator)
    alone = race(target, exponentials(numbers, 5))[:, :, 0]
    for parents in ((-1, 0, 1), (-1, -1, 0), (-1, -1, -1)):
        tokens = torch.randint(5, (200, 3), generator=generator)
        judged = RULES["gumbel"].accept(DraftedTree(tokens, parents), target, numbers)
        assert judged.accepted.any() and not judged.accepted.bool().all()
        for row in range(200):
            count = int(judged.accepted[row])
            text = [*tokens[row, judged.path[row, :count]].tolist(), int(judged.bonus[row])]
            assert text == alone[row, : count + 1].tolist()
