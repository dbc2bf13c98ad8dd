"""The Beta mixture against integrals, simulation, its limits and published rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.mixture import BetaMixture
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.formulas.closed_forms import (
    acceptance_of_tokens,
    accepted_at_least,
    expected_tokens,
    tree_value,
)
from specplan.ir.errors import UsageError
from tests.cost_models.small_trees import chain, expansion, independent_chains

TREES = (chain(1), chain(7), expansion(3, 2, 1), expansion(1, 1, 3, 1), independent_chains(4, 5))
SHAPES = st.floats(0.3, 40.0)


def mixed(
    *members: tuple[float, float, float], others: tuple[float, ...] = ()
) -> AcceptanceProfile:
    return AcceptanceProfile(AcceptanceKey(Model("draft")), BetaMixture(members, others))


@given(SHAPES, SHAPES, st.floats(0.7, 1.0), st.sampled_from(TREES))
@settings(max_examples=30)
def test_it_is_the_integral_over_contexts(
    a: float, b: float, decay: float, tree: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """Gauss-Jacobi quadrature of the tree value at one quality: exact for these degrees."""
    special = pytest.importorskip("scipy.special")
    nodes, weights = special.roots_sh_jacobi(24, a + b - 1, a)
    others = (0.4, 0.25, 0.2)

    def value(quality: float) -> float:
        def hazard(depth: int, rank: int) -> float:
            share = quality if rank == 0 else (1 - quality) * others[rank - 1]
            return share * decay ** (depth - 1)

        return tree_value(*tree, hazard)

    expected = np.dot(weights, [value(x) for x in nodes]) / weights.sum()
    rate = mixed((a, b, decay), others=others).tokens_per_round(*tree)
    assert rate.mean == pytest.approx(expected, rel=1e-6)
    assert rate.low == rate.high == rate.mean


def test_simulated_rounds() -> None:
    """Draw a context, then walk the tree: what is accepted, and where rounds end."""
    a, b, others = 3.0, 1.5, (0.5, 0.2)
    parents, ranks = tree = expansion(3, 2, 2)
    law = mixed((a, b, 1.0), others=others)
    rng = np.random.default_rng(0)
    rounds = 60_000
    quality = rng.beta(a, b, size=rounds)
    draws = rng.random((rounds, 3))
    children = {(parent, rank): node for node, (parent, rank) in enumerate(zip(*tree, strict=True))}
    ends, accepted = np.zeros(len(parents) + 1), np.zeros(4)
    for x, uniforms in zip(quality, draws, strict=True):
        edges = np.cumsum([x, *((1 - x) * w for w in others)])
        node = -1
        for depth in range(4):
            rank = int(np.searchsorted(edges, uniforms[depth], side="right")) if depth < 3 else 9
            if (node, rank) not in children:
                break
            node = children[node, rank]
        ends[node + 1] += 1
        accepted[depth] += 1
    assert law.end_shares(*tree) == pytest.approx(ends / rounds, abs=0.006)
    at_least = np.cumsum(accepted[::-1])[::-1][1:] / rounds
    assert law.accepted_at_least(*tree) == pytest.approx(at_least, abs=0.006)
    assert sum(law.end_shares(*tree)) == pytest.approx(1.0)
    assert len(ranks) == 3 + 6 + 12


def of_vector(vector: Sequence[float], concentration: float) -> BetaMixture:
    """The mixture with this positional vector at depth 1; `concentration` is a + b."""
    first, *rest = vector
    others = [p / (1.0 - first) for p in rest]
    return BetaMixture.of(first * concentration, (1.0 - first) * concentration, others=others)


@given(st.floats(0.05, 0.95), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=30)
def test_limits(first: float, second: float, third: float) -> None:
    """Contexts that are all alike: a positional vector, with one rank the scalar alpha."""
    rest = (1.0 - first) * 0.9
    vector = (first, rest * second * 0.5, rest * third * 0.5)
    positional = AcceptanceProfile.from_hazards([vector])
    alike = AcceptanceProfile(AcceptanceKey(Model("draft")), of_vector(vector, 1e8))
    for tree in TREES[1:]:
        expected = positional.tokens_per_round(*tree).mean
        assert alike.tokens_per_round(*tree).mean == pytest.approx(expected, rel=1e-5)
    assert alike.tokens_per_round(*chain(9)).mean == pytest.approx(
        expected_tokens(first, 9), rel=1e-5
    )
    varied = AcceptanceProfile(AcceptanceKey(Model("draft")), of_vector(vector, 3.0))
    at_first = [varied.hazard(1, rank) for rank in range(4)]
    assert at_first == pytest.approx([*vector, 0.0])


def test_hazards_by_depth() -> None:
    """(a + d - 1) / (a + b + d - 1), and what the other ranks take of the rest."""
    law = mixed((12.5, 4.7, 1.0), others=(0.3,))
    for depth in (1, 2, 5, 40):
        total = 12.5 + 4.7 + depth - 1
        assert law.hazard(depth, 0) == pytest.approx((12.5 + depth - 1) / total)
        assert law.hazard(depth, 1) == pytest.approx(4.7 * 0.3 / total)
        assert law.hazard(depth, 2) == 0.0
    hazards = accepted_at_least(*chain(4), law.hazard)
    assert law.accepted_at_least(*chain(4)) == pytest.approx(hazards)


def test_members_are_the_interval() -> None:
    law = mixed((8.0, 2.0, 1.0), (6.0, 4.0, 1.0), (7.0, 3.0, 0.9))
    each = [mixed(member).tokens_per_round(*chain(6)).mean for member in law.evidence.members]
    rate = law.tokens_per_round(*chain(6))
    assert rate.mean == pytest.approx(np.mean(each))
    assert min(each) <= rate.low < rate.mean < rate.high <= max(each)
    hazard = law.hazard_interval(1, 0)
    assert hazard.mean == pytest.approx(0.7)
    assert 0.6 <= hazard.low < hazard.mean < hazard.high <= 0.8
    rounds = law.rounds(*chain(6), tokens=100, batch=4)
    assert rounds.low < rounds.mean < rounds.high
    assert law.tokens_per_round((), ()).mean == 1.0


CHAIN_ROWS = {8: 3.09, 16: 3.14, 32: 2.75, 64: 1.94, 128: 1.19}
"""Speedups of single sequences by length: JF68M -> Llama-2-7B, C4, temperature 0, A100; SpecInfer
sweep of Sequoia (arXiv 2402.12374)."""
CHAIN_ROWS_WARM = {16: 1.87, 32: 1.48, 64: 1.11, 128: 0.69}
"""The same at temperature 0.6."""
VERIFY, DRAFT = 1.03, 0.5 / 24.2
"""A verification, and a draft step, in plain steps (24.2 ms)."""


def speedup(profile: AcceptanceProfile, length: int) -> float:
    return profile.tokens_per_round(*chain(length)).mean / (VERIFY + DRAFT * length)


def test_greedy_chains_of_sequoia_need_a_mixture() -> None:
    """Beta(12.5, 4.7) is within 8 % on all lengths; one alpha, fitted to the first, is not."""
    tokens = CHAIN_ROWS[8] * (VERIFY + 8 * DRAFT)
    alpha = AcceptanceProfile.from_hazards([[acceptance_of_tokens(tokens, 8)]])
    mixture = mixed((12.5, 4.7, 1.0))
    speedups = [speedup(alpha, length) for length in CHAIN_ROWS]
    assert speedups == pytest.approx([3.09, 2.91, 2.36, 1.70, 1.09], abs=0.01)
    for length, measured in CHAIN_ROWS.items():
        assert speedup(mixture, length) == pytest.approx(measured, rel=0.08)
    assert speedups[2] < 0.87 * CHAIN_ROWS[32]


def test_warm_chains_of_sequoia_need_no_mixture() -> None:
    alpha = AcceptanceProfile.from_hazards([[0.602]])
    speedups = [speedup(alpha, length) for length in CHAIN_ROWS_WARM]
    assert speedups == pytest.approx([1.846, 1.486, 1.068, 0.684], abs=1.5e-3)
    assert speedups == pytest.approx(list(CHAIN_ROWS_WARM.values()), rel=0.045)


def test_files(tmp_path: Path) -> None:
    profile = AcceptanceProfile(
        AcceptanceKey(Model("draft")),
        BetaMixture(((8.0, 2.0, 1.0), (6.5, 4.0, 0.9)), (0.5, 0.2), 120.0),
    )
    profile.save(tmp_path / "mixture.json")
    assert AcceptanceProfile.load(tmp_path / "mixture.json") == profile
    assert profile.evidence.kind == "mixture"
    assert profile.hazard_counts(1, 0) == pytest.approx((120 * profile.hazard(1, 0), 120))
    deep = profile.hazard_counts(3, 0)[1]
    assert deep == pytest.approx(120 * profile.accepted_at_least(*chain(2))[1])


@pytest.mark.parametrize(
    "broken",
    [
        BetaMixture(()),
        BetaMixture(((0.0, 1.0, 1.0),)),
        BetaMixture(((1.0, 1.0, 1.1),)),
        BetaMixture(((1.0, float("nan"), 1.0),)),
        BetaMixture(((1.0, 1.0, 1.0),), (0.8, 0.3)),
        BetaMixture(((1.0, 1.0, 1.0),), (), 0.0),
    ],
)
def test_broken_mixtures_are_refused(broken: BetaMixture) -> None:
    with pytest.raises(UsageError):
        AcceptanceProfile(AcceptanceKey(Model("draft")), broken)
