"""Readers of the tables, on tables that a known law filled: sizes between rows are met too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.devices.silicon.attention import Attention, AttentionSize
from specplan.cost_models.devices.silicon.collectives import Reduction
from specplan.cost_models.devices.silicon.experts import Experts, Family
from specplan.cost_models.devices.silicon.products import Products
from tests.cost_models.devices.silicon import synthetic


@pytest.fixture(scope="module")
def products() -> Products:
    table = Products.of(synthetic.SHEET, synthetic.products_table(), "bfloat16")
    assert table is not None
    return table


@pytest.fixture(scope="module")
def attention() -> Attention:
    tables = {"decode": synthetic.decode_table(), "prompt": synthetic.prompt_table()}
    table = Attention.of(synthetic.SHEET, tables)
    assert table is not None
    return table


@given(m=st.integers(1, 1024), n=st.integers(512, 16384), k=st.integers(512, 16384))
def test_products_between_measured_sizes_are_met_within_two_percent(products, m, n, k):
    seconds, reading = products.seconds(m, n, k)
    assert seconds == pytest.approx(synthetic.product_seconds(m, n, k), rel=0.02)
    assert not reading.outside


def test_products_of_more_rows_or_outputs_than_measured_are_parts_that_were(products):
    for m, n in ((16, 128256), (8192, 4096), (5000, 50000)):
        seconds, reading = products.seconds(m, n, 4096)
        assert seconds == pytest.approx(synthetic.product_seconds(m, n, 4096), rel=0.06)
        assert not reading.outside


def test_products_of_more_inputs_than_measured_keep_the_efficiency_and_say_so(products):
    seconds, reading = products.seconds(16, 4096, 53248)
    assert reading.outside
    assert seconds == pytest.approx(synthetic.product_seconds(16, 4096, 53248), rel=0.1)
    assert reading.error > products.seconds(16, 4096, 16384)[1].error


def test_products_narrower_than_measured_are_refused(products):
    assert products.holds(512, 512)
    assert not products.holds(8, 4096)


def test_products_of_arrays_of_rows(products):
    rows = np.array([1, 7, 300])
    seconds, _ = products.seconds(rows, 3000, 5000)
    singly = [products.seconds(int(m), 3000, 5000)[0] for m in rows]
    assert seconds == pytest.approx(singly)


def test_formats_have_their_own_rows_and_unknown_ones_none():
    table = synthetic.products_table()
    narrow = Products.of(synthetic.SHEET, table, "fp8")
    assert narrow is not None
    expected = synthetic.product_seconds(8, 4096, 4096, 1.0, 1978e12)
    assert narrow.seconds(8, 4096, 4096)[0] == pytest.approx(expected)
    assert Products.of(synthetic.SHEET, table, "nvfp4") is None


def test_formats_that_the_host_holds_up_are_left_out():
    table = synthetic.products_table()
    late = synthetic.table(table.seconds + 70e-6, **table.columns)
    assert Products.of(synthetic.SHEET, late, "bfloat16") is None


def size(batch, tokens, past, heads=32, kv_heads=8, width=128):
    return AttentionSize(batch, tokens, past, heads, kv_heads, width, "bfloat16")


@pytest.mark.parametrize(
    ("batch", "past", "heads", "kv_heads"),
    [(1, 1023, 32, 8), (4, 3000, 32, 8), (16, 500, 64, 8), (2, 30000, 32, 4)],
)
def test_decoding_is_met_between_rows(attention, batch, past, heads, kv_heads):
    seconds, reading = attention.seconds(size(batch, 1, past, heads, kv_heads))
    expected = synthetic.attention_seconds(batch, heads, kv_heads, 128, 1, past)
    assert seconds == pytest.approx(expected, rel=0.05)
    assert not reading.outside


def test_what_counts_is_pairs_of_sequence_and_kv_head(attention):
    """32 KV heads were never measured: 4 sequences of 8 are the same work."""
    many, _ = attention.seconds(size(2, 1, 1000, 128, 32))
    few, _ = attention.seconds(size(8, 1, 1000, 32, 8))
    assert many == pytest.approx(few)


@pytest.mark.parametrize(("tokens", "past"), [(2, 1000), (5, 4000), (8, 100)])
def test_a_few_tokens_over_a_cache_are_packed_heads(attention, tokens, past):
    seconds, reading = attention.seconds(size(4, tokens, past))
    expected = synthetic.attention_seconds(4, 32, 8, 128, tokens, past)
    assert seconds == pytest.approx(expected, rel=0.05)
    assert reading.error > attention.seconds(size(4, 1, past))[1].error


@pytest.mark.parametrize("tokens", [16, 700, 8192])
def test_prompts_are_met_between_rows(attention, tokens):
    seconds, _ = attention.seconds(size(2, tokens, 0))
    assert seconds == pytest.approx(synthetic.attention_seconds(2, 32, 8, 128, tokens, 0), rel=0.06)


def test_more_rows_than_packed_ones_are_a_prompt_of_equal_work(attention):
    seconds, _ = attention.seconds(size(2, 512, 2048))
    expected = synthetic.attention_seconds(2, 32, 8, 128, 512, 2048)
    assert seconds == pytest.approx(expected, rel=0.15)


def test_attention_of_arrays(attention):
    batch, past = np.array([1, 4, 16]), np.array([[100.0], [5000.0]])
    seconds, reading = attention.seconds(size(batch, 1, past))
    assert seconds.shape == reading.error.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        single, _ = attention.seconds(size(int(batch[j]), 1, float(past[i, 0])))
        assert seconds[i, j] == pytest.approx(single)


def test_other_head_widths_borrow_and_are_less_sure(attention):
    seconds, reading = attention.seconds(size(4, 1, 2000, width=96))
    expected = synthetic.attention_seconds(4, 32, 8, 96, 1, 2000)
    assert seconds == pytest.approx(expected, rel=0.1)
    assert reading.error > attention.seconds(size(4, 1, 2000))[1].error


def test_caches_in_unmeasured_formats_have_no_price(attention):
    unknown = AttentionSize(1, 1, 100, 32, 8, 128, "fp8")
    assert attention.seconds(unknown) is None
    assert Attention.of(synthetic.SHEET, {"decode": synthetic.decode_table()}) is None


def test_experts_are_read_under_the_skewed_routing():
    experts = Experts.of(synthetic.SHEET, synthetic.experts_table(), "bfloat16")
    assert experts is not None
    for family in (Family(4096, 14336, 2, 8), Family(4096, 7168, 2, 8), Family(2048, 768, 8, 128)):
        for tokens in (1, 3, 100, 3000):
            seconds, reading = experts.seconds(family, tokens)
            expected = synthetic.expert_seconds(
                tokens, family.hidden, family.width, family.active, family.experts
            )
            assert seconds == pytest.approx(expected, rel=0.04)
            assert not reading.outside


def test_unmeasured_families_borrow_from_the_nearest_and_are_less_sure():
    experts = Experts.of(synthetic.SHEET, synthetic.experts_table(), "bfloat16")
    assert experts is not None
    seconds, reading = experts.seconds(Family(4096, 1536, 8, 128), 8)
    assert seconds == pytest.approx(synthetic.expert_seconds(8, 4096, 1536, 8, 128), rel=0.3)
    assert reading.error > experts.seconds(Family(2048, 768, 8, 128), 8)[1].error + 0.1
    assert Experts.of(synthetic.SHEET, synthetic.experts_table(), "fp8") is None


def test_reductions_are_those_of_captured_graphs():
    reduction = Reduction.of(synthetic.SHEET, synthetic.reduction_table())
    assert reduction is not None
    for message in (8192, 1e6, 3e7):
        moved = 2 * 7 / 8 * message
        predicted = reduction.seconds(8, moved)
        assert predicted is not None
        assert predicted[0] == pytest.approx(5e-6 + moved / (0.7 * 450e9), rel=0.05)
    assert reduction.seconds(4, 1e6) is None


def test_what_was_timed_out_of_a_cache_is_priced_from_memory():
    """A cache of 50 MB that is four times as fast as memory: its rows are not believed."""
    table = synthetic.products_table()
    n, k = table.columns["n"], table.columns["k"]
    cached = synthetic.table(
        np.where(2.0 * n * k < 50e6, table.seconds / 4, table.seconds), **table.columns
    )
    from_memory = Products.of(synthetic.SHEET, cached, "bfloat16")
    assert from_memory is not None
    seconds, _ = from_memory.seconds(1, 4096, 4096)
    assert seconds == pytest.approx(2.0 * 4096 * 4096 / (0.85 * 3.35e12), rel=0.03)
    large, _ = from_memory.seconds(1, 16384, 16384)
    assert large == pytest.approx(synthetic.product_seconds(1, 16384, 16384), rel=0.01)
