"""Trees grown while drafting: goldens of the papers, exhaustive search, derived thresholds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.planner.trees import (
    LOOKS_BACK,
    BeamGrowth,
    Children,
    ConfidenceStop,
    Drafted,
    LayeredGrowth,
    RoundTimes,
    best_in_context,
    chain,
    children_of,
    draft_threshold,
    mass_threshold,
    optimal_stop,
    policy_value,
    search_trees,
    tuned_threshold,
)
from tests.planner.trees.laws import ordered_trees, vector

NEVER = -1.0  # a threshold that no layer falls below
ONES = np.ones(16)
EVERYWHERE = children_of(vector(0.6, 0.3, 0.1))


def test_golden_values_of_opt_tree() -> None:
    # arXiv 2406.17276 with q = (.6, .3, .1) at every node: accepted tokens, the bonus not counted
    for nodes, accepted in ((1, 0.6), (2, 0.96), (3, 1.26), (4, 1.476), (6, 1.836), (8, 2.0736)):
        drafted = LayeredGrowth(nodes, NEVER, 64)(EVERYWHERE)
        assert drafted.accepted(EVERYWHERE) == pytest.approx(accepted)
        assert len(drafted.tree) == nodes


def test_golden_layers_of_opt_tree() -> None:
    expected = [
        LayeredGrowth(8, NEVER, depth)(EVERYWHERE).accepted(EVERYWHERE) for depth in (1, 2, 3, 4)
    ]
    assert expected == pytest.approx([1.0, 1.87, 2.052, 2.0736])
    for threshold, depth in ((0.05, 4), (0.2, 3), (1.0, 1), (5.0, 1)):
        assert len(LayeredGrowth(8, threshold, 64)(EVERYWHERE).widths) == depth
    one_hot = children_of(vector(1.0))
    drafted = LayeredGrowth(5, 0.5, 64)(one_hot)
    assert drafted.tree == chain(5) and drafted.accepted(one_hot) == 5.0
    assert LayeredGrowth(1, 0.0, 64)(EVERYWHERE).tree == chain(1)


# a law whose every node has its own ordered row
nodes_rows = st.lists(
    st.lists(st.floats(0.01, 0.5), min_size=2, max_size=2).map(lambda r: sorted(r, reverse=True)),
    min_size=7,
    max_size=7,
)


def law_of(rows: list[list[float]]) -> Children:
    """Rows for the root and the nodes of the first two levels; none below."""
    names: list[tuple[int, ...]] = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    table = dict(zip(names, rows, strict=True))
    return lambda path: table.get(path, [0.0, 0.0])


@settings(max_examples=50)
@given(nodes_rows, st.integers(1, 5))
def test_layered_growth_equals_exhaustive_search(rows: list[list[float]], nodes: int) -> None:
    law = law_of(rows)
    best = 0.0
    for paths in ordered_trees(nodes, 2, 3):
        products = (np.prod([law(path[:i])[rank] for i, rank in enumerate(path)]) for path in paths)
        best = max(best, float(sum(products)))
    drafted = LayeredGrowth(nodes, NEVER, 3)(law)
    assert drafted.accepted(law) == pytest.approx(best)
    assert drafted.tree == best_in_context(law, nodes, 3)


@settings(max_examples=50)
@given(nodes_rows, st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
def test_no_policy_beats_the_best_tree_of_the_context(
    rows: list[list[float]], nodes: int, layers: int, beam: int
) -> None:
    law = law_of(rows)
    best = policy_value(
        lambda law: Drafted(best_in_context(law, nodes, 3), (), 0), [law], RoundTimes(ONES, ONES)
    )
    for policy in (LayeredGrowth(nodes, 0.1, layers), BeamGrowth(beam, layers, nodes)):
        assert policy(law).accepted(law) <= best.tokens_per_round - 1 + 1e-12


def test_golden_values_of_expand_and_rerank() -> None:
    # EAGLE-2: q = (.6, .3, .1), 2 best expanded, two further layers, 6 nodes kept
    drafted = BeamGrowth(beam=2, layers=3, nodes=6)(EVERYWHERE)
    assert drafted.accepted(EVERYWHERE) == pytest.approx(1.836)
    assert (drafted.pool, drafted.widths) == (10, (1, 2, 2))
    # the released code with depth 5, top 10: 10 + 5 * 10^2 nodes drafted
    many = children_of(vector(*(0.08,) * 12))
    assert BeamGrowth(10, 6, 59)(many).pool == 510


def test_a_wide_beam_is_exact() -> None:
    table = vector(0.5, 0.2, 0.1)
    drafted = BeamGrowth(beam=9, layers=4, nodes=9)(children_of(table))
    assert 1 + drafted.accepted(children_of(table)) == pytest.approx(
        search_trees(table, 9, 4).values[4, 9]
    )


def test_a_beam_stops_by_its_mass_where_it_is_looked_at() -> None:
    # two best of a layer: .9, then .6 * .9 = .54 and .3 * .6, in all .36 + .18 = .54, then .324
    def layers(**options: Any) -> int:
        return len(BeamGrowth(2, 6, 20, **options)(EVERYWHERE).widths)

    assert [layers(least_mass=mass) for mass in (0.95, 0.6, 0.4, 0.0)] == [1, 2, 3, 6]
    assert layers(least_mass=0.6, checked=(3, 5)) == 3
    assert layers(least_mass=0.3, checked=(3, 5)) == 5
    # mass * gain * lambda > t_d
    assert mass_threshold(0.01, 0.5, 0.05) == pytest.approx(0.4)


def test_the_threshold_is_the_draft_share_times_the_speedup() -> None:
    times = RoundTimes(np.linspace(1.0, 1.1, 9), np.array([0.05]))

    def grown(threshold: float) -> LayeredGrowth:
        return LayeredGrowth(8, threshold, 8)

    tuned = tuned_threshold(grown, [EVERYWHERE], times, seconds=0.05)
    speedup = times.plain / tuned.value.seconds_per_token
    assert tuned.threshold == pytest.approx(0.05 * speedup)
    assert tuned.threshold == draft_threshold(0.05, tuned.value.seconds_per_token)
    # layers add 1, .87, .182 and .0216: the third one passes, and the fourth is drafted in vain
    assert tuned.policy is not None and len(tuned.policy(EVERYWHERE).widths) == 4
    ahead = tuned_threshold(grown, [EVERYWHERE], times, 0.05, LOOKS_BACK)
    assert ahead.policy is not None and len(ahead.policy(EVERYWHERE).widths) == 3
    for other in (NEVER, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0):
        value = policy_value(grown(other), [EVERYWHERE], times)
        assert ahead.value.seconds_per_token <= value.seconds_per_token


def test_contexts_differ_and_so_do_the_trees() -> None:
    easy, hard = children_of(vector(0.95, 0.02)), children_of(vector(0.3, 0.2))
    times = RoundTimes(np.linspace(1.0, 1.1, 17), np.array([0.08]))
    tuned = tuned_threshold(
        lambda threshold: LayeredGrowth(16, threshold, 16), [easy, hard], times, 0.08, LOOKS_BACK
    )
    assert tuned.policy is not None
    assert tuned.policy(easy).tree.depth > tuned.policy(hard).tree.depth
    best_static = min(
        policy_value(LayeredGrowth(16, NEVER, depth), [easy, hard], times).seconds_per_token
        for depth in range(1, 17)
    )
    assert tuned.value.seconds_per_token < best_static


def test_a_useless_draft_is_never_called() -> None:
    times = RoundTimes(np.ones(9), np.array([0.5]))
    useless = children_of(vector(0.05))
    tuned = tuned_threshold(lambda t: LayeredGrowth(8, t, 8), [useless], times, seconds=0.5)
    assert tuned.policy is None and tuned.value.seconds_per_token == times.plain


def test_golden_optimal_stop() -> None:
    # SpecDec++ in renewal reward: K* = 4, lambda* = .0461933, stop from P(reject) = .567037 on
    confidences = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    times = RoundTimes(np.full(11, 0.11), np.array([0.02]))
    stop = optimal_stop([confidences], times)
    law = stop.policy(lambda path: confidences[len(path) : len(path) + 1])
    assert len(law.tree) == 4
    assert stop.value.seconds_per_token == pytest.approx(0.0461933, abs=5e-8)
    assert stop.rejection == pytest.approx(0.567037, abs=5e-7)


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4), min_size=1, max_size=3),
    st.floats(0.01, 1.0),
)
def test_optimal_stop_equals_exhaustive_search(contexts: list[list[float]], draft: float) -> None:
    times = RoundTimes(np.ones(5), np.array([draft]))
    best = min(
        sum(1.0 + draft * length for length in lengths)
        / sum(
            1.0 + float(np.cumprod(row[:length]).sum())
            for row, length in zip(contexts, lengths, strict=True)
        )
        for lengths in product(range(5), repeat=len(contexts))
    )
    found = optimal_stop(contexts, times).value.seconds_per_token
    assert found == pytest.approx(best, rel=1e-9)


def test_confidence_is_of_the_token_or_of_the_path() -> None:
    row = [0.9, 0.8, 0.7, 0.5, 0.9]

    def length(**options: Any) -> int:
        law = ConfidenceStop(most=5, **options)(lambda path: row[len(path) : len(path) + 1])
        assert law.widths == (1,) * len(law.tree)
        return len(law.tree)

    assert length(threshold=0.6, of="token") == 4  # the token of .5 has been drafted
    assert length(threshold=0.6, of="token", beforehand=True) == 3
    assert length(threshold=0.6, of="path") == 3  # .9, .72, .504
    assert length(threshold=0.6, of="path", beforehand=True) == 2
    assert length(threshold=0.6, of="path", beforehand=True, least=4) == 4
    assert length(threshold=0.0) == 5


def test_dropped_layers_are_paid_for() -> None:
    times = RoundTimes(np.array([1.0, 1.1, 1.2]), np.array([0.1, 0.2]), overhead=0.03)
    drafted = BeamGrowth(beam=2, layers=3, nodes=2)(EVERYWHERE)
    assert drafted.tree.depth < len(drafted.widths) == 3
    assert drafted.seconds(times) == pytest.approx(1.2 + 0.1 + 0.2 + 0.2 + 0.03)
    nothing = ConfidenceStop(1.0, 3, beforehand=True)(children_of(vector(0.5)))
    assert len(nothing.tree) == 0 and nothing.seconds(times) == times.plain
