"""All forms of a rule agree, whatever the tree, and tensor ops alone are enough for them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.tables.builtin import BUILTIN
from specplan.runtime.acceptance import RULES, DraftedTree
from tests.runtime.exact_checks import JUDGING, TREE

CHAINS_ONLY = sorted(name for name in RULES if BUILTIN.find("rule", name).chain_only)  # type: ignore[union-attr]


@given(st.integers(0, 2**32 - 1))
def test_shapes_that_differ_by_row_are_as_deep_and_wide_as_the_largest(seed: int) -> None:
    random = Random(seed)
    size = random.randint(0, 9)
    shapes = [tuple(random.randint(-1, i - 1) for i in range(size)) for _ in range(3)]
    tokens = torch.zeros(3, size, dtype=torch.int64)
    alone = [DraftedTree(tokens, shape) for shape in shapes]
    both = DraftedTree(tokens, torch.tensor(shapes, dtype=torch.int64).view(3, size))
    assert both.depth == max(tree.depth for tree in alone)
    assert both.width == max(tree.width for tree in alone)


@st.composite
def _random_trees(draw: st.DrawFn, chain: bool = False) -> tuple[Any, ...]:
    batch, count = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    vocabulary = draw(st.integers(2, 5))
    parents = tuple(node - 1 if chain else draw(st.integers(-1, node - 1)) for node in range(count))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    nodes = count + 1

    def probs() -> torch.Tensor:
        sharp = torch.randn(batch, nodes, vocabulary, generator=generator) * 3
        rows = sharp.softmax(-1)
        one_hot = torch.nn.functional.one_hot(rows.argmax(-1), vocabulary).to(rows.dtype)
        cold = torch.rand(batch, generator=generator) < 0.3
        return torch.where(cold[:, None, None], one_hot, rows)

    kind = draw(st.sampled_from(["point", "drawn", "mixed"]))
    index = [parent + 1 for parent in parents]
    if kind == "mixed":
        index = [row if draw(st.booleans()) else -1 for row in index]
    tokens = torch.randint(vocabulary, (batch, count), generator=generator)
    tree = DraftedTree(
        tokens,
        parents,
        live=torch.rand(batch, count, generator=generator) < 0.85,
        probs=None if kind == "point" else probs(),
        probs_index=None if kind == "point" else tuple(index),
        distinct=draw(st.booleans()) and _siblings_differ(tokens, parents),
    )
    return tree, probs(), torch.rand(batch, nodes, dtype=torch.float64, generator=generator)


def _siblings_differ(tokens: torch.Tensor, parents: tuple[int, ...]) -> bool:
    """Draws without replacement never repeat a token, those that were not needed included."""
    families = [[n for n, p in enumerate(parents) if p == parent] for parent in set(parents)]
    return all(len(set(row[f].tolist())) == len(f) for row in tokens for f in families)


def _equal(rule: str, case: tuple[Any, ...], **parameters: Any) -> None:
    tree, target, uniforms = case
    module = RULES[rule]
    rows = target.log() if module.TARGET == "logits" else target
    expected = module.accept_reference(tree, rows, uniforms, **parameters)
    dynamic = DraftedTree(
        tree.tokens,
        tree.parent_tensor(),
        tree.live,
        tree.probs,
        None if tree.probs_index is None else tree.probs_tensor(),
        tree.distinct,
    )
    for function in (module.accept, module.accept_vectorised):
        for form in (tree, dynamic):
            judged = function(form, rows, uniforms, **parameters)
            width = expected.path.shape[1]
            assert torch.equal(judged.path[:, :width], expected.path)
            assert (judged.path[:, width:] == -1).all()
            assert torch.equal(judged.accepted, expected.accepted)
            assert torch.equal(judged.bonus, expected.bonus)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_equals_its_reference(rule: str) -> None:
    parameters = _parameters(rule)

    @settings(max_examples=40, deadline=None)
    @given(case=_random_trees(chain=rule in CHAINS_ONLY), chosen=parameters)
    def holds(case: tuple[Any, ...], chosen: dict[str, Any]) -> None:
        _equal(rule, case, **chosen)

    holds()


def _parameters(rule: str) -> st.SearchStrategy[dict[str, Any]]:
    """Values of every parameter of a rule, its default among them."""
    declared = BUILTIN.find("rule", rule)
    assert declared is not None
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name, default in declared.parameters:
        low, high = (
            max(dict(declared.ranges)[name].low, 0.01),
            min(dict(declared.ranges)[name].high, 6),
        )
        number = (
            st.integers(int(low) or 1, int(high))
            if isinstance(default, int)
            else st.floats(low, high)
        )
        values[name] = st.just(default) | number
    return st.fixed_dictionaries(values)


@settings(max_examples=40, deadline=None)
@given(case=_random_trees(chain=True))
def test_a_chain_judged_child_by_child_is_judged_token_by_token(case: tuple[Any, ...]) -> None:
    tree, target, uniforms = case
    for other in ("recursive", "k_seq", "lenient"):
        parameters = {"lenience": 1.0} if other == "lenient" else {}
        token = RULES["token"].accept(tree, target, uniforms)
        judged = RULES[other].accept(tree, target, uniforms, **parameters)
        assert torch.equal(judged.path, token.path)


@settings(max_examples=60)
@given(case=_random_trees())
def test_greedy_is_recursive_at_temperature_zero(case: tuple[Any, ...]) -> None:
    tree, target, uniforms = case
    tree = replace(tree, distinct=False)  # siblings may repeat here, as independent draws do
    one_hot = torch.nn.functional.one_hot(target.argmax(-1), target.shape[2]).to(target.dtype)
    greedy = RULES["greedy"].accept(tree, target)
    recursive = RULES["recursive"].accept(tree, one_hot, uniforms)
    assert torch.equal(greedy.path, recursive.path)
    assert torch.equal(greedy.bonus, recursive.bonus)


def test_rows_do_not_depend_on_batch_mates() -> None:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, (5, 5), generator=generator)
    probs, target = torch.randn(2, 5, 6, 4, generator=generator).softmax(-1)
    uniforms = torch.rand(5, 6, generator=generator, dtype=torch.float64)
    tree = DraftedTree(tokens, TREE, probs=probs, probs_index=(0, 0, 1, 1, 2))
    together = RULES["recursive"].accept(tree, target, uniforms)
    for row in range(5):
        one = slice(row, row + 1)
        alone = DraftedTree(tokens[one], TREE, probs=probs[one], probs_index=(0, 0, 1, 1, 2))
        judged = RULES["recursive"].accept(alone, target[one], uniforms[one])
        assert torch.equal(judged.path, together.path[one])
        assert torch.equal(judged.bonus, together.bonus[one])


class _Rule(torch.nn.Module):
    """A rule on trees of one shape, as a compiled round calls it."""

    def __init__(self, rule: str, parents: tuple[int, ...]) -> None:
        super().__init__()
        self.rule = RULES[rule]
        self.parents = parents

    def forward(
        self, tokens: torch.Tensor, live: torch.Tensor, probs: torch.Tensor,
        target: torch.Tensor, uniforms: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        index = tuple(parent + 1 for parent in self.parents)
        tree = DraftedTree(tokens, self.parents, live, probs, index, distinct=False)
        judged = self.rule.accept_vectorised(tree, target, uniforms)
        return judged.path, judged.accepted, judged.bonus


@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_vectorised_form_is_traced_by_export(rule: str) -> None:
    parents = (-1, 0) if rule in CHAINS_ONLY else (-1, -1) if rule == "k_seq" else (-1, -1, 0)
    module, size = _Rule(rule, parents), len(parents)

    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(batch)
        probs, target = torch.rand(2, batch, size + 1, 5, generator=generator)
        return (
            torch.randint(5, (batch, size), generator=generator),
            torch.rand(batch, size, generator=generator) < 0.9,
            probs / probs.sum(-1, keepdim=True),
            target / target.sum(-1, keepdim=True),
            torch.rand(batch, size + 1, dtype=torch.float64, generator=generator),
        )

    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in range(5))
    traced = torch.export.export(module, inputs(3), dynamic_shapes=shapes).module()
    for output, expected in zip(traced(*inputs(20)), module(*inputs(20)), strict=True):
        assert torch.equal(output, expected)


def test_the_folder_and_the_table_know_the_same_rules() -> None:
    declared = {name: BUILTIN.find("rule", name) for name in BUILTIN.names("rule")}
    assert set(RULES) == {name for name, item in declared.items() if item and item.needs_logits}
    alone = {"greedy", "gumbel", "minhash"}  # has no distribution; test_races.py
    assert set(RULES) == {*JUDGING, *alone}
    for name, module in RULES.items():
        item = declared[name]
        assert item is not None and module.TARGET in ("logits", "probabilities")
        for form in (module.accept, module.accept_vectorised, module.accept_reference):
            given = inspect.signature(form).parameters
            assert {
                key: value.default
                for key, value in given.items()
                if value.kind is inspect.Parameter.KEYWORD_ONLY
            } == dict(item.parameters)
        assert set(dict(item.ranges)) == set(dict(item.parameters))
