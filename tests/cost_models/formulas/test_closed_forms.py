"""Closed forms against published and enumerated numbers."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.formulas.closed_forms import (
    acceptance_of_tokens,
    accepted_at_least,
    expected_rounds,
    expected_tokens,
    tree_value,
)
from specplan.ir.types.value_types import depths_of
from tests.cost_models.chains import best_chain_length, chain_speedup
from tests.cost_models.small_trees import expansion, independent_chains


def positional(*probabilities: float):
    def hazard(depth: int, rank: int) -> float:
        return probabilities[rank] if rank < len(probabilities) else 0.0

    return hazard


# Leviathan et al. 2022, theorem 3.8: best length and speedup by alpha and c.
COSTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
BEST = {
    0.3: ((3, 1.3757), (3, 1.3368), (2, 1.2636), (1, 1.1818), (1, 1.0833), (0, 1.0)),
    0.5: ((5, 1.8750), (4, 1.7940), (3, 1.6304), (2, 1.4583), (1, 1.2500), (1, 1.1538)),
    0.6: ((7, 2.2972), (6, 2.1697), (4, 1.9213), (3, 1.6738), (2, 1.4000), (1, 1.2308)),
    0.7: ((9, 2.9717), (8, 2.7576), (6, 2.3529), (4, 1.9808), (3, 1.5831), (2, 1.3687)),
    0.8: ((14, 4.2316), (11, 3.8167), (8, 3.0921), (6, 2.4696), (4, 1.8676), (3, 1.5537)),
    0.9: ((24, 7.4856), (19, 6.3654), (13, 4.6741), (10, 3.4309), (7, 2.3731), (5, 1.8742)),
    0.95: ((40, 12.5416), (31, 9.9542), (21, 6.5997), (15, 4.4790), (10, 2.8747), (8, 2.1750)),
    0.99: ((113, 32.0193), (84, 21.4332), (55, 11.4773), (39, 6.7557), (26, 3.8332),
           (20, 2.7182)),
}  # fmt: skip


@pytest.mark.parametrize("alpha", BEST)
def test_golden_best_length_and_speedup(alpha: float) -> None:
    for cost, (length, speedup) in zip(COSTS, BEST[alpha], strict=True):
        assert best_chain_length(alpha, cost) == length
        assert round(chain_speedup(alpha, length, cost), 4) == speedup


@given(st.floats(0.0, 1.0), st.integers(0, 60))
def test_expected_tokens_is_the_sum_of_powers(alpha: float, gamma: int) -> None:
    tokens = expected_tokens(alpha, gamma)
    assert tokens == pytest.approx(sum(alpha**i for i in range(gamma + 1)), rel=1e-9)
    if gamma and alpha > 0.01:
        assert acceptance_of_tokens(tokens, gamma) == pytest.approx(alpha, abs=1e-6)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.5))
def test_speculation_pays_exactly_when_alpha_exceeds_cost(alpha: float, cost: float) -> None:
    """Corollary 3.9."""
    assert (best_chain_length(alpha, cost) > 0) == (chain_speedup(alpha, 1, cost) > 1.0)
    if alpha > cost + 1e-9:
        assert chain_speedup(alpha, 1, cost) >= (1 + alpha) / (1 + cost) - 1e-12 > 1.0


def test_specinfer_default_tree() -> None:
    """SpecInfer <1,1,3,1,1,1,1,1>: 21 nodes with the root."""
    hazard = positional(0.6, 0.2, 0.1)
    tree = expansion(1, 1, 3, 1, 1, 1, 1, 1)
    assert len(tree[0]) + 1 == 21
    assert tree_value(*tree, hazard) == pytest.approx(2.732209, abs=5e-7)
    assert tree_value(*expansion(*[1] * 8), hazard) == pytest.approx(2.474806, abs=5e-7)


def test_independent_chains() -> None:
    """k chains of depth d: 1 + P_k sum p_1^i; three of four tokens."""
    value = tree_value(*independent_chains(3, 4), positional(0.6, 0.2, 0.1))
    assert round(value, 4) == 2.9584


@lru_cache
def ordered_trees(nodes: int, depth: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All ordered trees of that many drafted nodes, as sorted paths of ranks."""
    if nodes == 0:
        return ((),)
    if depth == 0:
        return ()
    trees = []
    for last in range(1, nodes + 1):  # size of the last child's subtree
        for rest in ordered_trees(nodes - last, depth):
            rank = sum(len(path) == 1 for path in rest)
            for below in ordered_trees(last - 1, depth - 1):
                child = ((rank,), *((rank, *path) for path in below))
                trees.append((*rest, *child))
    return tuple(trees)


def best_value(nodes: int, depth: int, *probabilities: float) -> float:
    best = 1.0
    for paths in ordered_trees(nodes, depth):
        ordered = sorted(paths, key=lambda path: (len(path), path))
        index = {path: i for i, path in enumerate(ordered)}
        parents = tuple(index.get(path[:-1], -1) for path in ordered)
        ranks = tuple(path[-1] for path in ordered)
        best = max(best, tree_value(parents, ranks, positional(*probabilities)))
    return best


def test_best_trees_by_enumeration() -> None:
    """Sequoia section 3.2: F(n) with the root counted in n."""
    golden = (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)
    for size, value in enumerate(golden, start=1):
        assert best_value(size - 1, 9, 0.6, 0.2, 0.1) == pytest.approx(value, abs=1e-12)
    halves = (1, 1.5, 2, 2.25, 2.5, 2.75, 3, 3.125)
    for size, value in enumerate(halves, start=1):
        assert best_value(size - 1, 9, 0.5, 0.5) == pytest.approx(value, abs=1e-12)
    # limited levels: 2 levels are one drafted level
    for size, value in ((2, 1.6), (3, 1.8), (4, 1.9)):
        assert best_value(size - 1, 1, 0.6, 0.2, 0.1) == pytest.approx(value)
    assert best_value(3, 2, 0.6, 0.2, 0.1) == pytest.approx(2.16)
    assert best_value(5, 2, 0.6, 0.2, 0.1) == pytest.approx(2.4)
    assert best_value(6, 9, 1.0, 0.0) == 7.0
    assert best_value(6, 9, 0.0, 0.0) == 1.0


@given(st.lists(st.floats(0, 0.3), min_size=3, max_size=3))
def test_levels_sum_to_the_value(probabilities: list[float]) -> None:
    tree = expansion(2, 3, 1, 2)
    hazard = positional(*probabilities)
    levels = accepted_at_least(*tree, hazard)
    assert len(levels) == max(depths_of(tree[0])) == 4
    assert 1 + sum(levels) == pytest.approx(tree_value(*tree, hazard))
    assert all(a >= b for a, b in pairwise(levels))


def test_expected_rounds_by_exact_recursion() -> None:
    """E[rounds] of a renewal process by dynamic programming over the tokens left."""
    at_least = (0.8, 0.5, 0.2)
    shares = np.array([1 - 0.8, 0.8 - 0.5, 0.5 - 0.2, 0.2])
    rounds = [0.0]
    for left in range(1, 129):
        rounds.append(1 + sum(p * rounds[max(0, left - x)] for x, p in enumerate(shares, start=1)))
    for tokens in (16, 64, 128):
        assert expected_rounds(tokens, at_least) == pytest.approx(rounds[tokens], rel=1e-4)
    assert expected_rounds(0, at_least) == 0.0
    assert expected_rounds(7, ()) == 7.0
