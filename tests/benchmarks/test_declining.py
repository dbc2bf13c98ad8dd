"""Hazards whose log-odds decline with depth, from one mean length."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.decisions.declining import DECLINE, declining_hazards
from specplan.cost_models.formulas.closed_forms import acceptance_of_tokens, tree_value
from specplan.ir.errors import UsageError


def length_of(hazards: tuple[float, ...]) -> float:
    depth = len(hazards)
    return tree_value(range(-1, depth - 1), [0] * depth, lambda level, _: hazards[level - 1])


def log_odds(hazard: float) -> float:
    return math.log(hazard / (1.0 - hazard))


@given(
    tokens=st.integers(1, 8),
    share=st.floats(0.02, 0.98),
    decline=st.floats(-0.3, 0.6),
    further=st.integers(0, 6),
)
def test_the_chain_has_the_length_and_the_odds_fall_evenly(
    tokens: int, share: float, decline: float, further: int
) -> None:
    length = 1.0 + share * tokens
    hazards = declining_hazards(length, tokens, tokens + further, decline)
    assert length_of(hazards[:tokens]) == pytest.approx(length, rel=1e-9)
    assert all(
        log_odds(a) - log_odds(b) == pytest.approx(decline, abs=1e-6) for a, b in pairwise(hazards)
    )


@given(length=st.floats(1.01, 3.99))
def test_without_decline_it_is_one_alpha(length: float) -> None:
    hazards = declining_hazards(length, 3, 5, 0.0)
    assert hazards == pytest.approx([acceptance_of_tokens(length, 3)] * 5, rel=1e-6)


@pytest.mark.parametrize(
    ("at_three", "at_five", "at_seven"),
    # SpecForge, Llama-4-Scout: humaneval (v1), mtbench (SpecForge head); Ling-flash-2.0: humaneval
    [(2.665, 3.085, 3.258), (2.491, 2.836, 3.019), (3.147, 3.932, 4.370)],
)
def test_lengths_of_published_heads(at_three: float, at_five: float, at_seven: float) -> None:
    hazards = declining_hazards(at_three, 3, 7, DECLINE)
    assert length_of(hazards[:5]) == pytest.approx(at_five, rel=0.03)
    assert length_of(hazards) == pytest.approx(at_seven, rel=0.05)


@pytest.mark.parametrize("length", [0.9, 4.1])
def test_impossible_lengths_are_refused(length: float) -> None:
    with pytest.raises(UsageError, match="not possible"):
        declining_hazards(length, 3, 5)
    assert declining_hazards(4.0, 3, 1)[0] == pytest.approx(1.0)
