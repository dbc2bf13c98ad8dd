"""The search for blocks that a draft can spare: what is tried, what is kept, and when it ends."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from math import comb

import pytest

from specplan.ir.blocks import Skips, spread
from specplan.ir.parser import parse_plan
from specplan.ir.plan import SourceState
from specplan.runtime.sources.registry import new_source
from specplan.runtime.sources.skip_sets import SkipSets

WINDOW = 20
Score = Callable[[Skips], int]
"""Of a window's tokens, those that a set has right."""


def made(layers: int = 12, attention: int = 3, mlp: int = 3, **more: float) -> SkipSets:
    given = {"layers": layers, "attention": attention, "mlp": mlp, "window": WINDOW, **more}
    words = ", ".join(f"{key}={value}" for key, value in given.items())
    plan = parse_plan(f"plan p\nmodel target\nstate @s = source skip_sets({words}) scope=process\n")
    (state,) = plan.states
    assert isinstance(state, SourceState)
    source = new_source(state, 61)
    assert isinstance(source, SkipSets)
    return source


def searched(source: SkipSets, score: Score) -> list[tuple[Skips, float]]:
    """The trials of a search to its end, with the best score after each."""
    found = []
    while source.is_searching:
        tried = source.left_out(trial=True)
        source.learn_trial(tried, score(tried), WINDOW)
        found.append((tried, source.score))
    return found


PLANTED = Skips.of([2, 3, 9], [1, 6, 7])


def common(skips: Skips) -> int:
    """Two tokens for every planted block; all of them for all six."""
    blocks = len(set(skips.words) & set(PLANTED.words))
    return WINDOW if blocks == 6 else 2 * blocks


def nowhere(skips: Skips) -> int:
    return 0


@pytest.mark.parametrize("layers", [3, 4, 12, 40])
@pytest.mark.parametrize("blocks", [(1, 0), (0, 1), (1, 1), (2, 1)])
def test_sets_have_the_declared_counts_and_keep_both_ends(
    layers: int, blocks: tuple[int, int]
) -> None:
    attention, mlp = (min(count, layers - 2) for count in blocks)
    source = made(layers, attention, mlp, every=2, trials=40)
    tried = [skips for skips, _ in searched(source, lambda skips: sum(skips.attentions) % WINDOW)]
    assert tried[0] == spread(layers, attention, mlp)
    assert len(set(tried)) == len(tried) <= 40
    for skips in tried:
        assert (len(skips.attentions), len(skips.mlps)) == (attention, mlp)
        assert all(0 < layer < layers - 1 for layer in (*skips.attentions, *skips.mlps))
    every = comb(layers - 2, attention) * comb(layers - 2, mlp)
    assert len(tried) == min(every, 40) or every > 36, "few sets are all tried"


def test_the_first_set_is_spread_evenly() -> None:
    assert spread(12, 5, 2) == Skips.of([2, 4, 6, 8, 10], [3, 8])
    assert spread(5, 3, 0) == Skips.of([1, 2, 3])


def test_a_set_is_judged_by_all_tokens_of_its_window() -> None:
    source = made()
    first = source.candidate
    source.learn_trial(first, 4, 7)
    source.learn_trial(first, 5, 12)
    assert source.candidate == first and not source.tried
    source.learn_trial(Skips.of([1, 2, 3], [1, 2, 3]), 9, 9)  # of a trial that is over by now
    source.learn_trial(first, 1, 3)  # two more than the window asks for
    assert source.tried == {first: 10 / 22} and source.score == 10 / 22
    second = source.candidate
    assert source.best == first != second
    source.learn_trial(second, 10, 22)
    assert source.best == first, "as good is no better"
    third = source.left_out(trial=True)
    source.learn_trial(third, 11, 22)
    assert source.best == source.left_out(trial=False) == third and source.score == 0.5


def test_the_same_seed_and_scores_try_the_same_sets() -> None:
    runs = [searched(made(every=3, trials=60, seed=seed), common) for seed in (4, 4, 5)]
    assert runs[0] == runs[1] != runs[2]


def test_the_search_ends_where_it_was_told_to() -> None:
    assert len(searched(made(trials=7), nowhere)) == 7
    assert len(searched(made(patience=9, trials=30), nowhere)) == 9
    good = searched(made(threshold=0.4), common)
    assert good[-1][1] == 0.4 > good[-2][1]
    source = made(layers=4, attention=1, mlp=1)
    assert len(searched(source, nowhere)) == 4, "there are no more sets"
    assert source.candidate == source.best == spread(4, 1, 1)
    source.learn_trial(source.candidate, WINDOW, WINDOW)
    assert source.score == 0.0, "nothing is learned any more"


def test_bayesian_guesses_find_a_planted_set() -> None:
    """One of 14400 sets; drawn sets alone do not find it in as many trials."""
    guided, drawn = made(every=4, trials=300), made(every=1_000_000, trials=300)
    found = searched(guided, common)
    assert guided.best == PLANTED and guided.score == 1.0 and len(found) < 300
    assert searched(drawn, common)[-1][1] < 1.0 and drawn.best != PLANTED


def test_memory_stays_below_what_is_said() -> None:
    tracemalloc.start()
    source = made(layers=80, attention=35, mlp=35, trials=400, patience=400)
    searched(source, nowhere)
    assert len(source.tried) == 400
    assert tracemalloc.get_traced_memory()[0] <= source.most_bytes
    tracemalloc.stop()
