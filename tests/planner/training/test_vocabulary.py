"""A drafter's vocabulary by price: coverage by frequency, and what large heads cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.planner.training.vocabulary import coverage, priced_vocabularies
from tests.planner.example_facts import SEVEN_BILLION
from tests.planner.training.test_candidates import LARGE_VOCABULARY, facts_of


def test_coverage_is_that_of_unseen_texts() -> None:
    """Ranked by count, then by id: 3, 1, then 0 and 2."""
    shares = coverage([[3, 3, 1]], [[3, 0, 1, 1], [3]], 4)
    assert shares == pytest.approx([0.0, 0.4, 0.8, 1.0, 1.0])


def test_the_best_size_follows_coverage_and_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few tokens cover all, the smallest head is fastest; where none is spared, the whole."""
    monkeypatch.setattr("specplan.planner.training.vocabulary.HALVES", 2)
    facts = facts_of(tmp_path, SEVEN_BILLION | LARGE_VOCABULARY)
    entries = facts.target.vocab_size
    most = [min(1.0, 50 * n / entries) for n in range(entries + 1)]
    even = [n / entries for n in range(entries + 1)]
    small, large = (priced_vocabularies(facts, "eagle3", shares, 0.7) for shares in (most, even))
    assert small[0].tokens == entries >> 1 and large[0].tokens == entries
    assert [one.tokens for one in small] == sorted(one.tokens for one in small)
    assert large[0].gain == pytest.approx(small[-1].gain), "the same head, with all tokens"
