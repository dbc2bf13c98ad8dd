"""Chains drafted in turns: lengths from the traces are those of drafting token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment, InterleavedTrace
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError

LONGEST = 4
LEGS = st.lists(
    st.builds(
        DraftSegment, st.sampled_from(["model", "source", "judged"]), st.integers(1, LONGEST)
    ),
    min_size=1,
    max_size=4,
)
TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def copies(text: list[int], start: int, seed: int) -> list[int]:
    """What a made-up source says from a position on: right for some tokens, then wrong."""
    right = (start * 5 + seed) % (LONGEST + 2) - 1
    ahead = text[start : start + LONGEST]
    return [token if place < right else 1 - token for place, token in enumerate(ahead)]


def drafted(
    text: list[int], model: list[int], legs: list[DraftSegment], start: int, seed: int
) -> list[int]:
    """The chain of a round that begins at a position, as long as it is the text."""
    chain: list[int] = []
    for leg in legs:
        here = start + len(chain)
        proposed = copies(text, here, seed)[: leg.tokens]
        if leg.by == "model":
            chain += model[here : here + leg.tokens]
        elif leg.by == "source":
            chain += proposed
            if len(proposed) < leg.tokens:
                return chain
        else:
            accepted = 0
            while accepted < len(proposed) and proposed[accepted] == model[here + accepted]:
                accepted += 1
            chain += proposed[:accepted] + model[here + accepted : here + accepted + 1]
        if chain != text[start : start + len(chain)]:
            return chain  # what is drafted below a wrong token is never accepted
    return chain


@given(TEXTS, st.data(), LEGS, st.integers(0, 9))
@settings(max_examples=300, deadline=None)
def test_lengths_are_those_of_drafting_token_by_token(
    text: list[int], data: st.DataObject, legs: list[DraftSegment], seed: int
) -> None:
    size = len(text)
    model = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    rows, expected = [], []
    for start in range(size):
        copied = copies(text, start, seed)
        same = [a == b for a, b in zip(copied, text[start:], strict=False)]
        rows.append((int(model[start] == text[start]), [*same, False].index(False)))
        chain = drafted(text, model, legs, start, seed)
        right = [a == b for a, b in zip(chain, text[start:], strict=False)]
        expected.append([*right, False].index(False))
    turns = InterleavedTrace(LONGEST, (tuple(rows),))
    assert turns.problem() is None
    assert turns.lengths(legs) == (tuple(expected),)


def test_stages_by_hand() -> None:
    """The model is right but for position 3; the text is copied 2 tokens from position 0 on."""
    rows = ((1, 2), (1, 1), (1, 0), (0, 0), (1, 5), (1, 4))
    turns = InterleavedTrace(8, (rows,))
    assert turns.lengths([DraftSegment("judged", 2)]) == ((3, 2, 1, 0, 2, 1),)
    assert turns.lengths([DraftSegment("judged", 1)] * 2) == ((3, 2, 1, 0, 2, 1),)
    assert turns.lengths([DraftSegment("model", 1), DraftSegment("source", 3)]) == (
        (2, 1, 1, 0, 2, 1),
    )
    assert turns.whole == ((3, 2, 1, 0, 2, 1),)


def test_a_profile_of_turns_is_read_back(tmp_path: Path) -> None:
    key = AcceptanceKey(Interleaved("draft", "text"), match=(1, 3))
    profile = AcceptanceProfile(key, InterleavedTrace(8, (((1, 2), (0, 1)), ((1, 0),))))
    profile.save(tmp_path / "profile.json")
    loaded = AcceptanceProfile.load(tmp_path / "profile.json")
    assert loaded == profile and loaded.evidence.kind == "interleaved" and loaded.positions == 3
    assert loaded.evidence.cut((DraftSegment("model", 1),)).rows == ((1, 0), (1,))
    assert loaded.evidence.problem_of([DraftSegment("source", 9)]) is not None


@pytest.mark.parametrize("rows", [(), (((2, 0),),), (((1, 9),),), (((0, -1),),)])
def test_broken_turns_are_refused(rows: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    with pytest.raises(UsageError, match=r"no measurement|out of range"):
        AcceptanceProfile(AcceptanceKey(Interleaved("draft", "text")), InterleavedTrace(8, rows))
