"""Chains that were drawn and merged keep the target's law, by exact enumeration in fractions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch

from specplan.backends.ops.graft import graft
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY
from specplan.backends.ops.tensors.trees import extended
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Graft
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import Value
from tests.runtime.exact import (
    Case,
    Scenario,
    emitted_probabilities,
    proposal,
    target_probabilities,
)
from tests.runtime.exact_checks import WAYS, agrees, random_probabilities

LENGTH, VOCABULARY = 2, 3
SEPARATE = (-1, 0, -1, 2)
"""Two chains side by side."""


def drawn_chain(tokens: tuple[int, ...]) -> Tree:
    """A chain of draws."""
    one = torch.ones(1, 1, dtype=torch.int64)
    tree = first_tree(one, one * FIRST_KEY, None)
    for place, token in enumerate(tokens):
        tree = extended(tree, one * place, one * token, one > 0, probs_row=one * place)
    return replace(tree, probs=(torch.full((1, LENGTH, VOCABULARY), 1 / VOCABULARY),))


def merged_parents(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Parents of the nodes of two chains of draws, as the interpreter merges them."""
    names = (Value("a"), Value("b"))
    op = Graft(results=(Value("c"),), trees=names, same="merge")
    tree = graft(
        op,
        [drawn_chain(tokens[:2]), drawn_chain(tokens[2:])],
        (),
        kind=TreeType(parents=None, chain=False),
    )
    assert tree.live.all()
    return tuple(parent - 1 for parent in tree.parents[0, 1:].tolist())


def outcomes(rule: str, seed: int, *, dropped: bool = False) -> dict[tuple[int, ...], Fraction]:
    """The law of what a round emits; `dropped` leaves out draws that an earlier one equals."""
    target, draft = random_probabilities(seed), random_probabilities(seed + 100)
    separate = Case(SEPARATE, target, draft, distinct=False)
    by_tree: defaultdict[tuple[tuple[int, ...], ...], list[Scenario]] = defaultdict(list)
    for tokens in product(range(VOCABULARY), repeat=len(SEPARATE)):
        weight = Fraction(1)
        for node, token in enumerate(tokens):
            weight *= proposal(separate, tokens, node)[token]
        parents = merged_parents(tokens)
        beside = [(above, token) for above, token in zip(parents, tokens, strict=True)]
        again = tuple(n for n, place in enumerate(beside) if place in beside[:n] and dropped)
        case = replace(separate, parents=parents, dead=again)
        by_tree[parents, again] += [
            Scenario(
                weight * more, tokens,
                tuple(used.get(node, Fraction(1, 3)) for node in range(len(tokens) + 1)),
                path, bonus,
            )
            for more, path, bonus, used in WAYS[rule](case, tokens)
        ]  # fmt: skip
    law: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for (parents, again), items in by_tree.items():
        case = replace(separate, parents=parents, dead=again)
        agrees(rule, case, items)
        for text, weight in emitted_probabilities(case, items, LENGTH + 1).items():
            law[text] += weight
    assert len(by_tree) > 1
    return dict(law)


@pytest.mark.parametrize("rule", ["recursive", "k_seq"])
@pytest.mark.parametrize("seed", range(2))
def test_the_law_is_the_targets(rule: str, seed: int) -> None:
    assert outcomes(rule, seed) == target_probabilities(random_probabilities(seed), LENGTH + 1)


def test_without_equal_draws_it_would_not_be() -> None:
    assert outcomes("recursive", 0, dropped=True) != target_probabilities(
        random_probabilities(0), LENGTH + 1
    )
