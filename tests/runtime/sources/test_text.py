"""Prompt lookup."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specplan.runtime.sources.source import ROOT, Wanted
from specplan.runtime.sources.text import continuations, lookup


def _slow(text: list[int], shortest: int, longest: int, length: int) -> list[int]:
    for order in range(longest, shortest - 1, -1):
        suffix = text[-order:]
        starts = [s for s in range(len(text) - order) if text[s : s + order] == suffix]
        if starts and len(suffix) == order:
            grown = list(text)
            for place in range(length):
                grown.append(grown[starts[-1] + order + place])
            return grown[len(text) :]
    return []


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    shortest=st.integers(1, 3),
    more=st.integers(0, 3),
    length=st.integers(1, 8),
)
def test_equals_the_obvious_search(text: list[int], shortest: int, more: int, length: int) -> None:
    longest = shortest + more
    proposed = lookup(np.array(text), shortest=shortest, longest=longest, length=length)
    assert proposed.tolist() == _slow(text, shortest, longest, length)
    drafts = continuations(np.array(text), Wanted(shortest, longest, 1, length))
    assert drafts.tokens[drafts.live].tolist() == proposed.tolist()


def test_prefers_long_matches_then_recent_ones() -> None:
    text = np.array([1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3])
    assert lookup(text, shortest=1, longest=3, length=2).tolist() == [9, 2]
    assert lookup(text, shortest=1, longest=2, length=2).tolist() == [8, 3]
    assert lookup(text, shortest=1, longest=1, length=2).tolist() == [7, 1]
    assert lookup(np.array([1, 2, 3]), shortest=1, longest=3, length=4).tolist() == []


def test_without_a_match_the_text_is_proposed_from_its_beginning() -> None:
    text = np.array([7, 1, 2, 3])
    assert lookup(text, shortest=0, longest=0, length=6).tolist() == [7, 1, 2, 3, 7, 1]
    assert lookup(text, shortest=0, longest=2, length=2).tolist() == [7, 1]
    known = np.array([7, 1, 2, 7])
    assert lookup(known, shortest=0, longest=2, length=2).tolist() == [1, 2]
    both = continuations(known, Wanted(shortest=0, longest=1, children=2, length=2))
    assert both.tokens.tolist() == [[1, 2, 7, 1]] and both.live.all()


def test_repetition_proposes_whole_continuations() -> None:
    assert lookup(np.array([5] * 6), shortest=1, longest=3, length=4).tolist() == [5] * 4
    proposed = lookup(np.array([1, 2, 3, 1, 2]), shortest=1, longest=2, length=5)
    assert proposed.tolist() == [3, 1, 2, 3, 1]


def test_continuations_are_merged_and_the_commonest_nodes_kept() -> None:
    text = np.array([1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2])  # 4 1 after the longest match, 3 1 twice

    def proposed(**wanted: int) -> list[tuple[int, int]]:
        there = continuations(text, Wanted(shortest=1, longest=3, **wanted))
        assert there.live[0].sum() == there.live[0].nonzero()[0][-1] + 1
        return list(zip(there.tokens[there.live], there.parents[there.live], strict=True))

    whole = [(4, ROOT), (1, 0), (3, ROOT), (1, 2)]
    assert proposed(children=3, length=2) == whole
    assert proposed(children=3, length=2, nodes=4) == [(3, ROOT), (1, 0), (4, ROOT), (1, 2)]
    assert proposed(children=3, length=2, nodes=3) == [(3, ROOT), (1, 0), (4, ROOT)]
    assert proposed(children=2, length=2, nodes=3) == [(4, ROOT), (1, 0), (3, ROOT)]
    assert proposed(children=1, length=2, nodes=1) == whole[:1]


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    short=st.integers(1, 8),
    more=st.integers(0, 8),
)
def test_longer_proposals_begin_like_shorter_ones(text: list[int], short: int, more: int) -> None:
    def proposed(length: int) -> list[int]:
        return lookup(np.array(text), shortest=1, longest=3, length=length).tolist()

    assert proposed(short + more)[:short] == proposed(short)
