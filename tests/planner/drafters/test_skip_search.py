"""The search for blocks to leave out: the integer programme is exact, what follows goes by seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.blocks import Skips
from specplan.planner.drafters.skip_search import (
    SAVINGS,
    SparedBlock,
    first_guesses,
    least_loss,
    refine,
    searched_blocks,
)

LOSSES = st.floats(0.0, 5.0)
TIMES = st.floats(-0.1, 1.0)


def blocks_of(figures: list[tuple[float, float]]) -> list[SparedBlock]:
    names = searched_blocks(len(figures) // 2 + 3)
    return [SparedBlock(name, *pair) for name, pair in zip(names, figures, strict=False)]


def subsets(blocks: list[SparedBlock]) -> Iterator[tuple[SparedBlock, ...]]:
    for size in range(len(blocks) + 1):
        yield from combinations(blocks, size)


@settings(max_examples=60)
@given(st.lists(st.tuples(TIMES, LOSSES), min_size=1, max_size=7), st.floats(0.01, 3.0))
def test_the_integer_programme_is_exhaustive_search(
    figures: list[tuple[float, float]], saving: float
) -> None:
    blocks = blocks_of(figures)
    slack = 1e-6 * saving
    strict, loose = (
        min(
            (
                sum(block.loss for block in chosen)
                for chosen in subsets(blocks)
                if sum(block.seconds for block in chosen) >= wanted
            ),
            default=None,
        )
        for wanted in (saving, saving - slack)
    )
    skips = least_loss(blocks, saving)
    if skips is None:
        assert strict is None
        return
    chosen = [block for block in blocks if block.name in skips.words]
    assert sum(block.seconds for block in chosen) >= saving - slack
    loss = sum(block.loss for block in chosen)
    assert loose is not None and loss >= loose - 1e-6
    assert strict is None or loss <= strict + 1e-4


def test_both_ends_of_the_stack_are_kept() -> None:
    assert searched_blocks(4) == ("attn.1", "mlp.1", "attn.2", "mlp.2")
    assert searched_blocks(2) == ()


def test_first_guesses_lose_least_for_what_they_save() -> None:
    """Equal blocks: the ones of least loss, as many as the saving needs."""
    losses = [0.5, 0.1, 0.4, 0.2, 0.3, 0.9, 0.8, 0.7]
    blocks = [
        SparedBlock(name, 1.0, loss) for name, loss in zip(searched_blocks(6), losses, strict=True)
    ]
    guesses = first_guesses(blocks)
    sizes = [2, 3, 4, 5, 6]
    assert [len(skips) for skips in guesses] == sizes and len(SAVINGS) == 5
    for skips, size in zip(guesses, sizes, strict=True):
        taken = sorted(block.loss for block in blocks if block.name in skips.words)
        assert taken == sorted(losses)[:size]


def test_where_no_block_saves_time_the_least_loss_is_guessed() -> None:
    """As a noisy measurement may have it: the set is priced, and loses."""
    slow = [SparedBlock("attn.1", -0.1, 0.2), SparedBlock("mlp.1", 0.0, 0.1)]
    assert first_guesses(slow) == (Skips.of((), [1]),)
    assert first_guesses([]) == ()


def test_refining_goes_by_seed_and_finds_more_than_it_was_given() -> None:
    pytest.importorskip("optuna")
    names = searched_blocks(8)
    wanted = set(names[::3])
    asked: list[Skips] = []

    def distance(skips: Skips) -> float:
        asked.append(skips)
        return float(len(wanted ^ set(skips.words)))

    guesses = [Skips.read(names[:6]), Skips.read(names[6:])]
    refined = refine(guesses, names, distance, trials=40, seed=3)
    assert asked[:2] == guesses
    values = [distance(skips) for skips in refined]
    assert values == sorted(values) and set(refined) == set(asked)
    assert values[0] < min(map(distance, guesses))
    asked.clear()
    assert refine(guesses, names, distance, trials=40, seed=3) == refined
    assert refine(guesses, names, distance, trials=0, seed=3)[0] in guesses
