"""Mixtures of experts and latent attention: golden numbers and forms that must agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.cost import OpCost
from specplan.cost_models.models.attention_costs import latent_attention_cost, query_key_pairs
from specplan.cost_models.models.forward import forward_cost, forward_ops
from specplan.cost_models.models.layer_ops import distinct_experts
from specplan.cost_models.models.layers import DenseMlp, ExpertMlp, GroupedAttention
from specplan.ir.errors import UsageError
from tests.cost_models.models.layered_shapes import DEEPSEEK_LATENT, layered
from tests.cost_models.models.public_shapes import shape

MIXTRAL_MLP = ExpertMlp(8, 2, 14336)


def ops_by_name(ops: tuple[OpCost, ...]) -> dict[str, OpCost]:
    return {op.name: op for op in ops}


@pytest.mark.parametrize(
    ("experts", "active", "tokens", "golden"),
    [
        (8, 2, 1, 2),
        (8, 2, 2, 3.5),
        (8, 2, 4, 5.4688),
        (8, 2, 8, 7.1991),
        (8, 2, 16, 7.9198),
        (256, 8, 8, 57.421),
        (256, 8, 64, 222.442),
    ],
)
def test_golden_distinct_experts(experts: int, active: int, tokens: int, golden: float) -> None:
    """Exact expectation of uniform independent routing; Mixtral and DeepSeek-V3."""
    assert distinct_experts(experts, active, tokens) == pytest.approx(golden, abs=5e-4)


def test_distinct_experts_is_the_expectation() -> None:
    """Against drawing: each token takes 2 of 8 experts without replacement."""
    generator = np.random.default_rng(0)
    draws = generator.random((4000, 5, 8)).argsort(axis=2)[:, :, :2].reshape(4000, 10)
    counts = [len(set(row)) for row in draws.tolist()]
    assert np.mean(counts) == pytest.approx(distinct_experts(8, 2, 5), abs=0.06)


def test_verification_of_experts_reads_more_weights() -> None:
    """Eight tokens read 3.6 times the expert weights of one: t(n) = t(1) is false at batch 1."""
    model = layered(GroupedAttention(32, 8, 128), MIXTRAL_MLP)
    one, eight = (ops_by_name(forward_ops(model, 1, n, 512))["expert_up"].cost for n in (1, 8))
    assert one.weight_bytes == 2 * 2 * 4096 * 2 * 14336
    assert eight.weight_bytes / one.weight_bytes == pytest.approx(7.1991 / 2, rel=1e-4)
    assert eight.flops == 8 * one.flops


def test_all_experts_chosen_cost_as_one_dense_mlp() -> None:
    attention = GroupedAttention(32, 8, 128)
    wide = ops_by_name(forward_ops(layered(attention, DenseMlp(4 * 512)), 1, 7, 100))
    all_chosen = ops_by_name(forward_ops(layered(attention, ExpertMlp(4, 4, 512)), 1, 7, 100))
    for dense, expert in (("mlp_up", "expert_up"), ("mlp_down", "expert_down")):
        assert wide[dense].cost.flops == all_chosen[expert].cost.flops
        assert wide[dense].cost.weight_bytes == all_chosen[expert].cost.weight_bytes


def test_latent_cache_is_read_once_for_all_heads() -> None:
    model = layered(DEEPSEEK_LATENT, DenseMlp(18432), hidden=7168, layers=61)
    assert model.kv_bytes_per_token == 61 * (512 + 64) * 2  # 70272, DeepSeek-V2 section 2.1.4
    decode = ops_by_name(forward_ops(model, 4, 1, 999))["attention"]
    assert decode.cost.kv_bytes == 4 * 1000 * (512 + 64) * 2


def test_latent_attention_is_absorbed_in_decoding_and_expanded_in_prefill() -> None:
    """Break-even at r (nope + v) / (2 r - nope - v) = 170.7 new tokens over a long context."""
    rank, expanded = 512, 256
    break_even = rank * expanded / (2 * rank + 64 - (expanded + 64))
    assert break_even == pytest.approx(170.7, abs=0.05)
    for tokens, pair_width in ((1, 1088), (8, 1088), (170, 1088), (172, 320), (1024, 320)):
        _, attention = latent_attention_cost(DEEPSEEK_LATENT, 1, tokens, 10**9, 2, 2)
        pairs, _ = query_key_pairs(tokens, 10**9, None, None, False)
        assert attention.flops == 2 * 128 * pairs * pair_width
    up, attention = latent_attention_cost(DEEPSEEK_LATENT, 1, 100, 0, 2, 2)
    assert attention.flops == 2 * 128 * (100 * 101 // 2) * 320
    assert up.flops == 2 * 100 * 512 * 128 * 256


def test_absorbed_attention_reads_no_expanded_keys_and_values() -> None:
    """Decoding moves queries of r + rope and outputs of r per head, and the latents themselves.

    The expanded keys and values of 4096 cached tokens would be 128 heads x 320 elements each.
    """
    _, decoding = latent_attention_cost(DEEPSEEK_LATENT, 4, 1, 4095, 2, 2)
    assert decoding.activation_bytes == 2 * 4 * 128 * (2 * 512 + 64)
    assert decoding.kv_bytes == 2 * 4 * 4096 * (512 + 64)
    _, prompt = latent_attention_cost(DEEPSEEK_LATENT, 4, 4096, 0, 2, 2)
    own = 4 * 4096 * 128 * (128 + 64 + 128)
    assert prompt.activation_bytes == 2 * (own + 4 * 4096 * 128 * (128 + 64 + 128))


@given(tokens=st.integers(1, 20), context=st.integers(0, 40), chunk=st.integers(1, 12))
@settings(max_examples=200)
def test_chunks_count_pairs_exactly(tokens: int, context: int, chunk: int) -> None:
    """Llama 4: a query at position p sees positions p - p mod C to p."""
    positions = range(context, context + tokens)
    pairs, reach = query_key_pairs(tokens, context, None, chunk, False)
    assert pairs == sum(p % chunk + 1 for p in positions)
    assert reach == context % chunk


@pytest.mark.parametrize(
    "model",
    [
        layered(GroupedAttention(32, 8, 128), MIXTRAL_MLP),
        layered(GroupedAttention(32, 8, 128, chunk=96), ExpertMlp(16, 1, 512)),
        layered(DEEPSEEK_LATENT, ExpertMlp(256, 8, 2048, shared_intermediate_size=2048)),
    ],
    ids=["experts", "chunks", "latent"],
)
def test_numbers_arrays_and_symbols_agree(model: object) -> None:
    import sympy

    symbols = sympy.symbols("B n s", positive=True, integer=True)
    tokens, context = np.meshgrid([1.0, 33.0, 300.0], [0.0, 64.0, 1000.0])
    many = forward_cost(model, 2, tokens, context, tensor_parallel=2)
    written = forward_cost(model, *symbols, tensor_parallel=2)
    for field in ("flops", "bytes", "link_bytes", "launches"):
        function = sympy.lambdify(symbols, getattr(written, field), "math")
        for index in np.ndindex(tokens.shape):
            point = 2, int(tokens[index]), int(context[index])
            exact = getattr(forward_cost(model, *point, tensor_parallel=2), field)
            assert np.broadcast_to(getattr(many, field), tokens.shape)[index] == pytest.approx(
                exact, rel=1e-12
            )
            assert function(*point) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_devices_share_the_work(parts: int) -> None:
    model = shape("llama-3-8b")
    whole, share = (
        forward_cost(model, 4, 3, 100),
        forward_cost(model, 4, 3, 100, tensor_parallel=parts),
    )
    assert share.flops * parts == whole.flops
    assert share.weight_bytes * parts == whole.weight_bytes
    assert share.kv_bytes * parts == whole.kv_bytes
    message = 4 * 3 * 4096 * 2
    reduced = ops_by_name(forward_ops(model, 4, 3, 100, tensor_parallel=parts))["all_reduce"]
    assert reduced.count == 2 * 32
    assert reduced.cost.link_bytes == 2 * (parts - 1) / parts * message


def test_devices_beyond_the_kv_heads_hold_copies() -> None:
    model = shape("llama-3-8b")  # 8 KV heads
    eight, sixteen = (forward_cost(model, 1, 1, 1000, tensor_parallel=n) for n in (8, 16))
    assert sixteen.kv_bytes == eight.kv_bytes
    with pytest.raises(UsageError, match="3 devices"):
        forward_cost(model, 1, 1, 1000, tensor_parallel=3)


def test_latents_are_copied_to_every_device() -> None:
    model = layered(DEEPSEEK_LATENT, DenseMlp(18432), hidden=7168)
    one, eight = (forward_cost(model, 1, 1, 1000, tensor_parallel=n) for n in (1, 8))
    assert one.kv_bytes == eight.kv_bytes
