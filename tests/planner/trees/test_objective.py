"""Seconds per token with costs by size and width: exhaustive search, bounds and goldens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sequoia_demo import DEMO
from specplan.ir.errors import UsageError
from specplan.planner.trees import (
    AcceptanceTable,
    RoundTimes,
    TreeObjective,
    chain,
    level_widths,
    search_trees,
    tree_of_paths,
)
from tests.planner.trees.tables import (
    listed_times,
    ordered_rows,
    ordered_trees,
    path_sum,
    rows,
    vector,
)

NODES, DEPTH = 5, 3

seconds = st.floats(0.01, 2.0)
verify_seconds = st.lists(seconds, min_size=NODES + 1, max_size=NODES + 1)
# where all nodes are worth something: a worthless one pays only if more nodes take less time
worthy = rows(ranks=3).map(
    lambda table: [[max(h, 0.05) for h in (*row, *[0.0] * (3 - len(row)))] for row in table]
)
draft_seconds = st.lists(st.sampled_from([0.01, 0.1, 0.2, 0.5, 1.0]), min_size=1, max_size=4)


def least_of_all(table: AcceptanceTable, times: RoundTimes) -> float:
    """Seconds per token of the best of all trees, by enumeration."""
    best = times.plain
    for nodes in range(1, NODES + 1):
        for paths in ordered_trees(nodes, table.hazards.shape[1], DEPTH):
            taken = times.round_seconds(tree_of_paths(paths))
            best = min(best, taken / path_sum(table, paths))
    return best


@settings(max_examples=40)
@given(worthy, verify_seconds, st.floats(0.0, 1.0), st.floats(0.0, 0.5))
def test_the_choice_is_exact_where_width_costs_nothing(
    table: list[list[float]], verify: list[float], draft: float, overhead: float
) -> None:
    accepted = AcceptanceTable.of_rows(table)
    times = RoundTimes(np.array(verify), np.array([draft]), overhead)
    choice = TreeObjective(accepted, NODES, DEPTH).best(times)
    assert choice.seconds_per_token == pytest.approx(least_of_all(accepted, times), rel=1e-9)
    assert choice.gap == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=60)
@given(worthy, verify_seconds, draft_seconds)
def test_the_bound_holds_where_width_costs(
    table: list[list[float]], verify: list[float], draft: list[float]
) -> None:
    accepted = AcceptanceTable.of_rows(table)
    times = RoundTimes(np.array(verify), np.array(draft))
    choice = TreeObjective(accepted, NODES, DEPTH).best(times)
    best = least_of_all(accepted, times)
    assert choice.bound <= best * (1 + 1e-9)
    assert best <= choice.seconds_per_token * (1 + 1e-9)
    assert choice.seconds_per_token <= times.plain
    assert choice.seconds_per_token == pytest.approx(choice.seconds_by_cell.min(), rel=1e-9)


@settings(max_examples=60)
@given(ordered_rows(ranks=3), verify_seconds, st.floats(0.05, 1.0), st.floats(0.0, 1.0))
def test_one_step_of_width_is_decided_exactly_or_bounded(
    table: list[list[float]], verify: list[float], draft: float, more: float
) -> None:
    accepted = AcceptanceTable.of_rows(table)
    times = RoundTimes(np.array(verify), np.array([draft, draft + more]))
    choice = TreeObjective(accepted, NODES, DEPTH).best(times)
    best = least_of_all(accepted, times)
    assert choice.bound <= best * (1 + 1e-9) <= choice.seconds_per_token * (1 + 2e-9)


def test_a_price_of_width_makes_narrow_trees() -> None:
    table = vector(0.5, 0.3, 0.1)
    verify = np.full(33, 1.0)
    flat = TreeObjective(table, 32, 6).best(RoundTimes(verify, np.array([0.02])))
    steep = TreeObjective(table, 32, 6).best(RoundTimes(verify, np.array([0.02, 0.02, 0.2, 0.4])))
    assert max(level_widths(flat.tree)) > 2 >= max(level_widths(steep.tree))
    assert flat.gap == pytest.approx(0.0, abs=1e-12) and steep.gap < 0.01


def test_the_demo_of_the_published_search() -> None:
    # demo-config.json: max_depth 10, max_budget 128, draft .3, target by budget; it charges one
    # draft step per level and counts the root as one, which is a verified node and a draft step
    # (of the next round's preparation) more than ours.
    times = listed_times(
        {0: 10.0, 1: 10.0, 3: 10.0, 7: 12.0, 15: 14.0, 31: 18.0}, [0.3], overhead=0.3
    )
    choice = TreeObjective(vector(*DEMO), 127, 9).best(times)
    assert choice.tree == chain(3)  # size 4, levels 4
    assert choice.tokens_per_round == pytest.approx(2.2914317, abs=5e-7)  # six decimals given
    assert choice.seconds_per_token == pytest.approx(4.8877739, abs=1e-6)
    assert choice.speedup == pytest.approx(2.0459211, abs=5e-7)


def test_an_almost_free_verification_takes_the_largest_tree() -> None:
    # c = .5 / 24.2, every level charged: (128, 7 levels), speedup 3.3635. The sheet says that it
    # takes t(n) = 1, with which the speedup is 3.5692; 1.07 steps, within the 1.03 to 1.10 that it
    # derives from the published table, give its figure.
    c = 0.5 / 24.2
    for verify, speedup in ((1.07, 3.3635), (1.0, 3.5692)):
        times = RoundTimes(np.array([1.0] + [verify] * 127), np.array([c]), overhead=c)
        choice = TreeObjective(vector(*DEMO), 127, 9).best(times)
        assert (len(choice.tree), choice.tree.depth) == (127, 6)
        assert choice.speedup == pytest.approx(speedup, abs=1e-4)


def test_plain_decoding_is_charged_no_draft_step() -> None:
    # A draft step as long as the target's own, and a draft that is right one time in ten.
    table, c = vector(0.1), 1.0
    ours = TreeObjective(table, 8, 4).best(RoundTimes(np.ones(9), np.array([c])))
    assert ours.tree == chain(0) and ours.seconds_per_token == 1.0 and ours.speedup == 1.0
    # the published objective, (levels * c + t(n)) / F, charges size 1, levels 1 a step as well
    published = {
        levels: (levels * c + 1.0) / sum(0.1**i for i in range(levels)) for levels in (1, 2)
    }
    assert min(published.values()) == published[1] == 2.0 > ours.seconds_per_token
    # and so a round of 1.875 seconds per token seems a gain over 2.0, where plain decoding takes 1
    steep = {levels: (levels + 1.0) / sum(0.6**i for i in range(levels)) for levels in (1, 2)}
    assert steep[2] < steep[1]
    sober = TreeObjective(vector(0.6), 8, 4).best(RoundTimes(np.ones(9), np.array([c])))
    assert sober.tree == chain(0)


def test_one_objective_serves_many_batches_and_contexts() -> None:
    objective = TreeObjective(vector(*DEMO), 64, 8)
    sizes = []
    for batch in (1, 8, 64):
        times = RoundTimes.of(
            lambda nodes, b=batch: 0.02 + 1e-5 * b * (nodes + 1), lambda widths: 0.0005, 64, 64
        )
        choice = objective.best(times)
        assert choice.gap == pytest.approx(0.0, abs=1e-12)
        assert choice.seconds_per_token <= times.plain
        sizes.append(len(choice.tree))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    assert all(a is b for a, b in zip([objective.exact], [objective.exact], strict=True))


def test_times_are_by_size_and_by_width() -> None:
    times = RoundTimes(np.array([1.0, 1.1, 1.2, 1.4]), np.array([0.1, 0.3]), overhead=0.05)
    assert times.round_seconds(chain(0)) == 1.0
    assert times.round_seconds(chain(2)) == pytest.approx(1.2 + 0.1 + 0.1 + 0.05)
    bushy = tree_of_paths([(0,), (1,), (0, 0)])
    assert level_widths(bushy) == (1, 1)
    assert times.round_seconds(bushy) == pytest.approx(1.4 + 0.1 + 0.1 + 0.05)
    assert times.draft_of(np.array([0, 1, 2, 9])).tolist() == [0.0, 0.1, 0.3, 0.3]
    with pytest.raises(UsageError):
        times.round_seconds(chain(4))
    for verify, draft in (([], [0.1]), ([0.0, 1.0], [0.1]), ([1.0], [-0.1]), ([1.0], [])):
        with pytest.raises(UsageError):
            RoundTimes(np.array(verify), np.array(draft))


def test_the_table_of_all_sizes_is_what_was_found() -> None:
    table = vector(0.6, 0.2, 0.1)
    times = RoundTimes(np.linspace(1.0, 1.5, 9), np.array([0.05]))
    choice = TreeObjective(table, 8, 4).best(times)
    values = search_trees(table, 8, 4)
    for nodes in range(1, 9):
        for depth in range(1, 5):
            tree = values.tree(nodes, depth)
            taken = times.round_seconds(tree) / tree.value(table)
            if len(tree) == nodes:
                assert choice.seconds_by_cell[depth, nodes] == pytest.approx(taken)
    assert np.isinf(choice.seconds_by_cell[0, 1:]).all() and choice.seconds_by_cell[0, 0] == 1.0
