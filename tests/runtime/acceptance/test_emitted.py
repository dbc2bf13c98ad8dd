"""The law that a rule emits, against the enumeration of all its ways on a small vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from itertools import product

import pytest
import torch

from specplan.ir.tables.acceptance import RULE_ENTRIES
from specplan.ir.values import Entry
from specplan.runtime.acceptance import RULES
from specplan.runtime.acceptance._emitted import emitted_law
from tests.runtime.exact import Case, Probabilities, normalise, scenarios

TARGETS = ([5, 2, 2, 1], [1, 1, 1, 7], [4, 3, 2, 1], [400, 2, 3, 1], [1, 1, 1, 1])
DRAFTS = ([1, 1, 1, 1], [7, 1, 1, 1], [0, 5, 5, 2], [1, 2, 3, 4], [0, 0, 1, 0])
JUDGED = ["token", *(one.name for one in RULE_ENTRIES if one.lossless == "never")]


def _exactly(law: Sequence[Fraction]) -> torch.Tensor:
    return torch.tensor([float(mass) for mass in law], dtype=torch.float64)


def enumerated(rule: str, target: Probabilities, draft: Probabilities) -> list[Fraction]:
    """The law of the first token that is emitted, summed over drafts and ways to judge them."""
    if rule == "all":
        return [*draft]
    case = Case(parents=(-1,), target=lambda _: target, draft=lambda _: draft)
    law = [Fraction(0)] * len(target)
    module = import_module(f"tests.runtime.ways.{rule}")
    for one in scenarios(case, getattr(module, "DEFAULT", module.WAYS)):
        law[one.tokens[0] if one.path else one.bonus] += one.weight
    return law


@pytest.mark.parametrize("rule", JUDGED)
def test_measured_law_and_divergence_are_the_enumerated_ones(rule: str) -> None:
    """For every pair of a target's law and a draft's, on a vocabulary of four."""
    for numbers in product(TARGETS, DRAFTS):
        target, draft = (normalise([Fraction(n) for n in one]) for one in numbers)
        exact = _exactly(enumerated(rule, target, draft))
        p, q = _exactly(target), _exactly(draft)
        law = emitted_law(Entry(rule), p.log(), p, q)
        assert law.tolist() == pytest.approx(exact.tolist(), abs=1e-9), numbers
        distance = float((law - p).abs().sum()) / 2
        assert distance == pytest.approx(float((exact - p).abs().sum()) / 2, abs=1e-9)
        if rule == "token":
            assert distance == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("rule", [name for name in RULES if hasattr(RULES[name], "passing_tokens")])
def test_tokens_pass_one_by_one_as_together(rule: str) -> None:
    """`passing_tokens` of a row says what the reference says of each of its tokens."""
    random = torch.Generator().manual_seed(1)
    rows = 3.0 * torch.randn(20, 9, generator=random).double()
    rows[0, :3] = 1.0
    if RULES[rule].TARGET == "probabilities":
        rows = rows.softmax(-1)
    together = RULES[rule].passing_tokens(rows)
    for row, passing in zip(rows, together, strict=True):
        assert [RULES[rule]._passes(row, token)[0] for token in range(9)] == passing.tolist()


def test_without_a_draft_a_rule_that_judges_tokens_takes_its_first_choice() -> None:
    """The token after a draft that stood whole; other rules draw it from the target's law."""
    p = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    assert emitted_law(Entry("typical"), p.log(), p, None).tolist() == [0.0, 1.0, 0.0]
    assert emitted_law(Entry("lenient"), p.log(), p, None).tolist() == p.tolist()
