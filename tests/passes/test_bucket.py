"""The shapes that are chosen are the cheapest there are, and hold what they should."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.passes.bucket import UNCOMPILED, BatchLoad, Buckets, bucket


def linear(*batches: int, base: float = 10.0) -> list[BatchLoad]:
    """Rounds of 10 seconds and one more for each request."""
    return [BatchLoad(batch, 100, base + batch) for batch in batches]


def test_padding_is_weighed_against_compiling() -> None:
    """By hand: 1 in 4 takes 14/11 of its time, 2 in 4 14/12, each a third of the time."""
    lost = (14 / 11 - 1 + 14 / 12 - 1) / 3
    one = bucket(linear(1, 2, 4), compile_seconds=100, serving_seconds=300)
    assert one.shapes == ((4, 100),) and one.compile_seconds == 100
    assert one.padding == pytest.approx(lost)
    # two shapes: 1 and 4 lose (14/12 - 1)/3, 2 and 4 lose (12/11 - 1)/3, which is less
    two = bucket(linear(1, 2, 4), compile_seconds=100, serving_seconds=1000)
    assert two.shapes == ((2, 100), (4, 100))
    assert two.padding == pytest.approx((12 / 11 - 1) / 3)
    three = bucket(linear(1, 2, 4), compile_seconds=1, serving_seconds=1000)
    assert [batch for batch, _ in three.shapes] == [1, 2, 4] and three.padding == 0.0


def test_no_more_than_are_allowed() -> None:
    free = bucket(linear(*range(1, 20)), compile_seconds=0.0, most=5)
    assert len(free.shapes) == 5 and free.shapes[-1] == (19, 100)


def test_rounds_that_take_as_long_at_every_batch_need_one_shape() -> None:
    flat = [BatchLoad(batch, 50 * batch, 7.0) for batch in (1, 8, 64)]
    assert bucket(flat, compile_seconds=1.0).shapes == ((64, 3200),)


def test_what_is_asked_for_often_counts_more() -> None:
    loads = [BatchLoad(1, 9, 1.0, share=0.01), BatchLoad(2, 9, 2.0, share=9), BatchLoad(8, 9, 8.0)]
    assert bucket(loads, 100.0, 500.0, most=2).shapes == ((2, 9), (8, 9))


def test_texts_that_do_not_fit_beside_large_batches() -> None:
    """Long texts were left out of the table at batch 8: one shape does not hold them."""
    loads = [BatchLoad(1, 9000, 10.0), BatchLoad(1, 100, 10.0), BatchLoad(8, 100, 10.0)]
    few = bucket(loads, compile_seconds=1e6, serving_seconds=1.0)
    assert few.shapes == ((8, 100),) and few.padding == pytest.approx(UNCOMPILED / 3)
    assert bucket(loads, compile_seconds=1.0).shapes == ((1, 9000), (8, 100))


@st.composite
def tables(draw: st.DrawFn) -> list[BatchLoad]:
    batches = draw(st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True))
    texts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2, unique=True))
    number = st.floats(0.5, 20.0)
    return [
        BatchLoad(batch, text, draw(number), draw(number))
        for batch in batches
        for text in texts
        if text == min(texts) or batch * text < 100
    ]


@given(tables(), st.floats(0.1, 500.0), st.integers(1, 5))
@settings(max_examples=60)
def test_no_choice_of_shapes_is_cheaper(
    loads: list[BatchLoad], compile_seconds: float, most: int
) -> None:
    chosen = bucket(loads, compile_seconds, 1000.0, most)
    sizes = sorted({load.batch for load in loads})
    costs = [
        1000.0 * lost(loads, (*some, sizes[-1])) + compile_seconds * (count + 1)
        for count in range(min(most, len(sizes)))
        for some in combinations(sizes[:-1], count)
    ]
    cost = 1000.0 * chosen.padding + chosen.compile_seconds
    assert cost == pytest.approx(min(costs))
    assert cost == pytest.approx(
        1000.0 * lost(loads, tuple(batch for batch, _ in chosen.shapes)) + chosen.compile_seconds
    )
    check_rooms(loads, chosen)


def lost(loads: list[BatchLoad], shapes: tuple[int, ...]) -> float:
    """What padding costs with shapes of these batches, load by load."""
    parts = 0.0
    for load in loads:
        size = next(batch for batch in shapes if batch >= load.batch)
        times = {other.text: other.seconds for other in loads if other.batch == size}
        fits = [text for text in times if text >= load.text]
        part = max(times[min(fits)] / load.seconds - 1, 0.0) if fits else UNCOMPILED
        parts += load.share * part
    return parts / sum(load.share for load in loads)


def check_rooms(loads: list[BatchLoad], chosen: Buckets) -> None:
    """Every shape is some load's own, as large as a device is known to hold."""
    known = {(load.batch, load.text) for load in loads}
    for batch, text in chosen.shapes:
        assert any(batch == own and text <= room for own, room in known)
