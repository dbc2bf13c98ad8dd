"""Distributions, draws and streams of uniforms."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specplan.runtime.requests import Request
from specplan.runtime.sampling import (
    SamplingSettings,
    _best_by_turns,
    best,
    draw,
    draw_distinct,
    probabilities,
)
from specplan.runtime.uniforms import _GOLDEN, _mix, uniforms


def row(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Request:
    """A request that samples so."""
    return Request(prompt_tokens=(0,), temperature=temperature, top_k=top_k, top_p=top_p)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.2, 3),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1),
)
def test_law_equals_transformers(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(2, 11, generator=torch.Generator().manual_seed(seed))
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    rows = SamplingSettings.of([row(temperature, top_k, top_p)])
    law = probabilities(logits[None], rows)[0]
    assert torch.allclose(law, expected.softmax(-1), atol=1e-6)


def test_settings_differ_by_row() -> None:
    logits = torch.tensor([[[1.0, 3.0, 3.0, 2.0]]]).expand(4, 1, 4)
    rows = [row(0.0), row(1.0), row(1.0, top_k=1), row(1.0, top_k=3)]
    laws = probabilities(logits, SamplingSettings.of(rows))[:, 0]
    assert laws[0].tolist() == [0, 1, 0, 0]  # the lowest of two equal ids
    assert torch.allclose(laws[1], logits[0, 0].softmax(-1))
    assert laws[2].tolist() == [0, 1, 0, 0]
    assert laws[3][0] == 0 and (laws[3][1:] > 0).all()
    assert torch.allclose(laws.sum(-1), torch.ones(4))


def test_whole_numbers_are_temperatures_too() -> None:
    assert SamplingSettings.of([row(temperature=1)]).temperature.dtype == torch.float32


def test_all_greedy_is_one_hot() -> None:
    rows = SamplingSettings.of([row(0.0), row(0.0)])
    assert rows.greedy
    laws = probabilities(torch.tensor([[[0.0, 5.0, 5.0]], [[9.0, 1.0, 2.0]]]), rows)
    assert laws[:, 0].tolist() == [[0, 1, 0], [1, 0, 0]]


def test_draw_is_the_inverse_of_the_cumulative_law() -> None:
    masses = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.74, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert draw(masses.expand(6, 6), numbers).tolist() == [1, 1, 3, 3, 4, 4]


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_draw_never_gives_an_impossible_token(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    masses = torch.rand(3, size, generator=generator) ** 30
    masses[:, torch.randint(size, (1,), generator=generator)] = 1e-30
    masses[0, torch.rand(size, generator=generator) < 0.5] = 0
    masses[0, 0] = 1e-20
    for number in (0.0, 1 - 2**-53, float(torch.rand(1, generator=generator))):
        token = draw(masses, torch.full((3,), number, dtype=torch.float64))
        assert (masses.gather(1, token[:, None]) > 0).all()


def test_draw_distinct_has_the_law_of_drawing_without_replacement() -> None:
    """For each ordered outcome, uniforms inside its region give it; the regions tile the cube."""
    masses = [Fraction(n, 20) for n in (8, 0, 7, 5)]
    total = Fraction(0)
    for outcome in permutations(range(4), 3):
        left, weight, inside = list(masses), Fraction(1), []
        for token in outcome:
            chance = left[token] / sum(left)
            inside.append(float((sum(left[:token]) + left[token] / 2) / sum(left)))
            weight *= chance
            left[token] = Fraction(0)
            if weight == 0:
                break
        if weight == 0:
            continue
        total += weight
        rows = torch.tensor([[[float(mass) for mass in masses]]], dtype=torch.float64)
        assert tuple(draw_distinct(rows, torch.tensor([[inside]]))[0, 0].tolist()) == outcome
    assert total == 1


def test_draw_distinct_beyond_the_support_is_uniform_over_the_rest() -> None:
    rows = torch.tensor([[[0.0, 1.0, 0.0, 0.0]]])
    for number, second in ((0.1, 0), (0.5, 2), (0.9, 3)):
        drawn = draw_distinct(rows, torch.tensor([[[0.3, number, 0.99]]]))[0, 0].tolist()
        assert drawn[:2] == [1, second]
        assert len(set(drawn)) == 3


def test_best_prefers_lower_ids_among_equals() -> None:
    rows = torch.tensor([[[1.0, 2.0, 2.0, 0.0, 2.0, 1.0]]])
    for count in range(1, 7):
        assert best(rows, count)[0, 0].tolist() == [1, 2, 4, 0, 5, 3][:count]
    distinct = torch.tensor([[[0.1, 0.4, 0.2, 0.3]]])
    assert best(distinct, 3)[0, 0].tolist() == [1, 3, 2]


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=9, max_size=9), min_size=1
    ),
    count=st.integers(1, 9),
)
def test_a_compiled_best_is_the_same(rows: list[list[float]], count: int) -> None:
    table = torch.tensor([rows])
    assert torch.equal(_best_by_turns(table, count), best(table, count))


def test_uniforms_are_a_pure_function_of_the_request() -> None:
    together = uniforms([5, -1, 2**70], "draft", [10, 11, 12], 0, 6)
    assert together.shape == (3, 6) and together.dtype == torch.float64
    assert torch.equal(uniforms([-1], "draft", [11], 0, 6), together[1:2])
    assert torch.equal(uniforms([-1], "draft", [11], 4, 2), together[1:2, 4:])
    assert torch.equal(uniforms([2**70 % 2**64], "draft", [12], 0, 6), together[2:])
    for other in (
        uniforms([6], "draft", [10], 0, 6),
        uniforms([5], "accept", [10], 0, 6),
        uniforms([5], "draft", [11], 0, 6),
    ):
        assert not (other == together[:1]).any()


def test_uniforms_golden() -> None:
    """SplitMix64 from state 0 gives 0xE220A8397B1DCDAF first (reference implementation, Vigna)."""
    assert int(_mix(np.array([_GOLDEN]))[0]) == 0xE220A8397B1DCDAF


def test_uniforms_are_uniform() -> None:
    """Over neighbouring seeds, lengths and indices: chi-square with 63 degrees of freedom."""
    numbers = torch.cat(
        [uniforms(range(40), "accept", [length] * 40, 0, 8).flatten() for length in range(100)]
    )
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = torch.histc(numbers, 64, 0, 1)
    expected = len(numbers) / 64
    assert float(((counts - expected) ** 2 / expected).sum()) < 120  # p = 2e-5
    assert abs(float((numbers[1:] - 0.5) @ (numbers[:-1] - 0.5)) / len(numbers)) < 0.002
