"""Per-op costs against golden numbers, and one formula for numbers, symbols and arrays."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.attention_costs import grouped_attention_cost
from specplan.cost_models.models.forward import forward_cost, forward_ops
from specplan.cost_models.models.layers import GroupedAttention
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import CONFIGS, shape

# A100 80 GB at its data-sheet peak: 312 TFLOP/s, 2.039 TB/s, no launch cost.
IDEAL_A100 = AnalyticDevice("ideal", 80e9, 2.039e12, {"float16": 312e12})


def seconds(batch: int, tokens: int, context: int, rows: int | None = None) -> float:
    return IDEAL_A100.forward_seconds(shape("llama-2-7b"), batch, tokens, context, rows).median


def test_golden_ops_of_llama_2_7b() -> None:
    """One decoding step at 512 tokens of context, fp16: flops and bytes per op of a layer."""
    ops = {op.name: op for op in forward_ops(shape("llama-2-7b"), 1, 1, 512)}
    golden = {
        "query_key_value": (100663296, 100696064),
        "attention_output": (33554432, 33570816),
        "mlp_up": (180355072, 180407296),
        "mlp_down": (90177536, 90207744),
        "attention": (8404992, 8421376),
    }
    for name, expected in golden.items():
        assert (ops[name].cost.flops, ops[name].cost.bytes) == expected
        assert ops[name].count == 32
    assert ops["lm_head"].cost.flops == 2 * 4096 * 32000


def test_golden_roofline_of_verification() -> None:
    assert seconds(1, 1, 512) == pytest.approx(6.615e-3, abs=5e-7)
    golden = {
        2: 1.0004,
        4: 1.0012,
        8: 1.0028,
        16: 1.0059,
        32: 1.0123,
        64: 1.0249,
        128: 1.0502,
        256: 1.6807,
        512: 3.3781,
    }
    for tokens, ratio in golden.items():
        assert round(seconds(1, tokens, 512) / seconds(1, 1, 512), 4) == ratio


@pytest.mark.parametrize(
    ("context", "batch", "four", "eight"),
    [
        (512, 1, 1.0012, 1.0028),
        (512, 8, 1.0083, 1.0194),
        (512, 32, 1.0233, 1.4092),
        (512, 64, 1.2870, 2.0150),
        (512, 128, 1.6394, 2.5668),
        (8192, 128, 1.0547, 1.1341),
    ],
)
def test_golden_batched_verification(context: int, batch: int, four: float, eight: float) -> None:
    one = seconds(batch, 1, context)
    assert round(seconds(batch, 4, context) / one, 4) == four
    assert round(seconds(batch, 8, context) / one, 4) == eight


@pytest.mark.parametrize(
    ("batch", "short", "long"),
    [(1, 2.5643, 2.5649), (32, 2.5160, 2.5594), (64, 2.0543, 2.5005), (128, 1.6497, 2.4503)],
)
def test_speculation_pays_at_long_context_even_in_large_batches(
    batch: int, short: float, long: float
) -> None:
    """The effect of MagicDec, arXiv 2408.11049: alpha 0.8, three drafted, draft at 0.05."""
    emitted = 1 + 0.8 + 0.8**2 + 0.8**3
    for context, golden in ((512, short), (8192, long)):
        one = seconds(batch, 1, context)
        speedup = emitted * one / (3 * 0.05 * one + seconds(batch, 4, context))
        assert round(speedup, 4) == golden


def test_head_only_on_rows_that_need_logits() -> None:
    model = shape("llama-2-7b")
    whole = forward_cost(model, 1, 512, 0)
    last = forward_cost(model, 1, 512, 0, logit_rows=1)
    none = forward_cost(model, 1, 512, 0, logit_rows=0)
    assert whole.flops - last.flops == 511 * 2 * 4096 * 32000
    assert none.launches == last.launches - 1
    assert last.weight_bytes == 2 * model.matmul_parameters


def test_grouped_queries_read_fewer_keys() -> None:
    plain = grouped_attention_cost(GroupedAttention(32, 32, 128), 1, 1, 1000, 2, 2).kv_bytes
    grouped = grouped_attention_cost(GroupedAttention(32, 8, 128), 1, 1, 1000, 2, 2).kv_bytes
    assert plain == 4 * grouped


@given(tokens=st.integers(1, 20), context=st.integers(0, 40), window=st.integers(1, 30))
@settings(max_examples=200)
def test_window_counts_pairs_exactly(tokens: int, context: int, window: int) -> None:
    pairs = sum(min(context + i, window) for i in range(1, tokens + 1))
    attention = GroupedAttention(32, 8, 128, window=window)
    cost = grouped_attention_cost(attention, 1, tokens, context, 2, 2)
    assert cost.flops == 4 * 32 * 128 * pairs
    first_key = max(0, context + 1 - window)
    assert cost.kv_bytes == 2 * 2 * 8 * 128 * (context + tokens - first_key)


def test_layer_types_and_spans() -> None:
    config = CONFIGS["qwen2-7b"] | {
        "use_sliding_window": True,
        "sliding_window": 64,
        "max_window_layers": 20,
    }
    mixed = ModelShape.from_config(config)
    counts = [op.count for op in forward_ops(mixed, 1, 1, 512) if op.name == "attention"]
    assert counts == [20, 8]
    lower = forward_cost(mixed, 1, 1, 512, logit_rows=0, layers=(0, 10))
    upper = forward_cost(mixed, 1, 1, 512, logit_rows=1, layers=(10, 28))
    assert astuple(lower + upper) == astuple(forward_cost(mixed, 1, 1, 512))
    with pytest.raises(UsageError, match="layers 0:99"):
        forward_cost(mixed, 1, 1, 512, layers=(0, 99))


@pytest.mark.parametrize("windowed", [False, True])
def test_symbols_and_numbers_share_one_formula(windowed: bool) -> None:
    sympy = pytest.importorskip("sympy")
    config = CONFIGS["mistral-7b"] | ({"sliding_window": 96} if windowed else {})
    model = ModelShape.from_config(config)
    symbols = sympy.symbols("B n s", positive=True, integer=True)
    cost = forward_cost(model, *symbols)
    for field in ("flops", "bytes"):
        function = sympy.lambdify(symbols, getattr(cost, field), "math")
        for point in ((1, 1, 512), (8, 5, 64), (128, 33, 90)):
            expected = getattr(forward_cost(model, *point), field)
            assert function(*point) == pytest.approx(expected, rel=1e-12)


def test_arrays_give_many_costs_at_once() -> None:
    model = ModelShape.from_config(CONFIGS["mistral-7b"] | {"sliding_window": 96})
    tokens = np.arange(1.0, 50.0)
    many = forward_cost(model, 2, tokens, 80).flops
    for index in (0, 20, 48):
        assert many[index] == forward_cost(model, 2, int(tokens[index]), 80).flops


def test_an_array_of_rows_runs_the_head_where_there_are_some() -> None:
    model = shape("llama-2-7b")
    rows = np.array([0, 1, 8])
    many = forward_cost(model, 1, 8, 100, logit_rows=rows)
    for index, count in enumerate(rows.tolist()):
        one = forward_cost(model, 1, 8, 100, logit_rows=count)
        assert np.broadcast_to(many.bytes, 3)[index] == one.bytes
        assert np.broadcast_to(many.launches, 3)[index] == one.launches
