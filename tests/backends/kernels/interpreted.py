"""Checks of the kernels' numbers under Triton's interpreter; `test_interpreted.py` runs them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.backends.kernels import cuda_forms, torch_forms
from specplan.runtime.models.kv_cache import KVCache
from tests.backends.kernels.cases import attention_case, rotation_case, tree_case
from tests.matrix import sized

few = settings(max_examples=sized(4, 7), deadline=None, derandomize=True)


@few
@given(
    seed=st.integers(0, 999),
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    tokens=st.integers(1, 9),
    window=st.integers(1, 12),
    slots=st.integers(12, 90),
    page=st.sampled_from([0, 0, 8, 5]),
    splits=st.sampled_from([1, 2, 4]),
)
def test_attention_of_any_shape(seed: int, splits: int, **shape: int) -> None:
    case = attention_case(seed, head_dim=64, **shape)
    torch.testing.assert_close(
        cuda_forms.tree_attention(*case, splits),
        torch_forms.tree_attention(*case),
        atol=2e-6,
        rtol=1e-5,
    )


@pytest.mark.parametrize("splits", [1, 4])
def test_a_tree_of_128_nodes_over_several_tiles(splits: int) -> None:
    case = attention_case(
        1, batch=1, kv_heads=1, group=2, tokens=128, head_dim=128, slots=300, window=128
    )
    torch.testing.assert_close(
        cuda_forms.tree_attention(*case, splits),
        torch_forms.tree_attention(*case),
        atol=2e-6,
        rtol=1e-5,
    )


def test_half_precision() -> None:
    case = attention_case(
        2, batch=1, kv_heads=2, group=4, tokens=5, head_dim=128, slots=150, window=8,
        dtype=torch.float16,
    )  # fmt: skip
    exact = [item.float() if i < 3 else item for i, item in enumerate(case[:6])]  # type: ignore[union-attr]
    attended = cuda_forms.tree_attention(*case, 2)
    assert attended.dtype == torch.float16
    torch.testing.assert_close(
        attended.float(), torch_forms.tree_attention(*exact, case[6]), atol=2e-3, rtol=2e-3
    )


@few
@given(
    seed=st.integers(0, 999),
    batch=st.integers(1, 2),
    tokens=st.integers(1, 4),
    heads=st.integers(1, 4),
    kv_heads=st.integers(1, 2),
)
def test_queries_and_keys_turn_and_are_stored(seed: int, **shape: int) -> None:
    *given, keys, values = rotation_case(seed, head_dim=64, slots=9, **shape)
    stored = [(keys.clone(), values.clone()) for _ in range(2)]
    rotated = cuda_forms.rotate_and_store(*given, *stored[0])
    torch.testing.assert_close(rotated, torch_forms.rotate_and_store(*given, *stored[1]))
    for mine, wanted in zip(*stored, strict=True):
        torch.testing.assert_close(mine, wanted)


@few
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), width=st.integers(1, 9000))
def test_norms_and_gated_activations_of_any_width(seed: int, rows: int, width: int) -> None:
    random = torch.Generator().manual_seed(seed)
    hidden, weight, joined = (
        torch.randn(shape, generator=random)
        for shape in ((rows, 1, width), (width,), (rows, 2 * width))
    )
    torch.testing.assert_close(
        cuda_forms.rms_norm(hidden, weight, 1e-5), torch_forms.rms_norm(hidden, weight, 1e-5)
    )
    torch.testing.assert_close(cuda_forms.gated_silu(joined), torch_forms.gated_silu(joined))


@pytest.mark.parametrize("rule", ["greedy", "token", "recursive"])
@settings(max_examples=sized(8, 18), deadline=None, derandomize=True)
@given(seed=st.integers(0, 99999))
def test_rules_say_the_same(rule: str, seed: int) -> None:
    tree, target, uniforms = tree_case(seed, chain=rule == "token")
    wanted = torch_forms.accept(rule, tree, target, uniforms)
    judged = cuda_forms.accept(rule, tree, target, uniforms)
    assert torch.equal(judged.path, wanted.path)
    assert torch.equal(judged.accepted, wanted.accepted)
    assert torch.equal(judged.bonus, wanted.bonus)


@few
@given(seed=st.integers(0, 999), dtype=st.sampled_from([torch.bfloat16, torch.float32]))
def test_moves_are_those_of_the_cache(seed: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(seed)
    cache = KVCache.empty(
        batch=2, capacity=12, num_layers=2, num_kv_heads=2, head_dim=4, dtype=dtype,
        device=torch.device("cpu"),
    )  # fmt: skip
    for tensor in (*cache.keys, *cache.values):
        tensor.copy_(torch.randn(tensor.shape, generator=random))
    moved = [tensor.clone() for tensor in (*cache.keys, *cache.values)]
    source, destination = (
        torch.stack([torch.randperm(12, generator=random)[:5] for _ in range(2)]) for _ in range(2)
    )
    live = torch.rand(2, 5, generator=random) < 0.7
    cache.move(source, destination, live)
    cuda_forms.move_slots(moved, source, destination, live, None)
    for stored, wanted in zip(moved, (*cache.keys, *cache.values), strict=True):
        assert torch.equal(stored[:, :, :12], wanted[:, :, :12])


def test_moves_in_pages() -> None:
    caches = [torch.randn(7, 2, 4, 8) for _ in range(3)]
    pages = torch.tensor([[5, 1], [0, 6]], dtype=torch.int32)
    wanted = [cache.clone() for cache in caches]
    moves = torch.tensor([[2, 5, 7], [7, 3, 3]]), torch.tensor([[1, 2, 3], [3, 4, 5]])
    live = torch.tensor([[True, True, True], [True, True, False]])
    torch_forms.move_slots(wanted, *moves, live, pages)
    cuda_forms.move_slots(caches, *moves, live, pages)
    assert all(torch.equal(a, b) for a, b in zip(caches, wanted, strict=True))
