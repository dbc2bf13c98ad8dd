"""Times of single kernels: tiles and waves, attention, collectives, quantised weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.cost import Cost, Matrix, OpCost
from specplan.cost_models.devices.device import UnpricedError, load_device
from specplan.cost_models.devices.matrix_time import Tiling, smooth_maximum
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.stack import IDEAL
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from tests.cost_models.models.public_shapes import CONFIGS, shape

EASY = Tiling(processors=10, flops=1e12, bandwidth=1e30, half_area=0.0)
"""Compute bound, every tile as good as the next."""


def easy(rows: int, outputs: int, inputs: int = 1280) -> float:
    return float(EASY.seconds(Matrix(rows, inputs, outputs), 0.0))


def analytic(name: str) -> AnalyticDevice:
    device = load_device(name)
    assert isinstance(device, AnalyticDevice)
    return device


def test_rows_are_padded_to_tiles_and_tiles_to_waves() -> None:
    """Ten tiles of 128 x 128 on ten processors are one wave; by hand, 2 R C k / (P / 10)."""
    wave = 2 * 128 * 128 * 1280 / 1e11
    assert easy(128, 1280) == pytest.approx(wave)
    assert easy(100, 1280) == pytest.approx(wave)  # padded rows cost what full ones do
    # 129 rows are two rows of tiles; of 64 x 64, 3 x 20 tiles are six waves of a quarter
    assert easy(129, 1280) == pytest.approx(1.5 * wave)
    # one product of one tile leaves nine processors idle: split over inputs, four work
    assert easy(64, 64) == pytest.approx(2 * 64 * 64 * 1280 / 4 / 1e11)


def test_limits_are_the_roofline() -> None:
    tiling = Tiling(processors=100, flops=1e14, bandwidth=1e12, half_area=500.0)
    ideal = 2 * 1e6 * 8192 * 8192 / 1e14
    seconds = tiling.seconds(Matrix(1_000_000, 8192, 8192), 0.0)
    assert ideal < seconds < ideal * (1 + 500 / (128 * 256)) * 1.01
    assert tiling.seconds(Matrix(1, 8192, 8192), 1e9) == pytest.approx(1e-3, rel=1e-3)


@given(
    rows=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    inputs=st.integers(64, 9000),
    outputs=st.integers(64, 30000),
)
@settings(max_examples=50)
def test_arrays_are_scalars_and_time_never_falls(
    rows: list[int], inputs: int, outputs: int
) -> None:
    tiling = Tiling(108, 2.5e14, 1.7e12, 860.0)
    rows = sorted(rows)
    traffic = 2.0 * (inputs * outputs + np.array(rows) * (inputs + outputs))
    seconds = tiling.seconds(Matrix(np.array(rows), inputs, outputs), traffic)
    alone = [
        tiling.seconds(Matrix(row, inputs, outputs), float(moved))
        for row, moved in zip(rows, traffic, strict=True)
    ]
    assert seconds == pytest.approx(alone)
    assert (np.diff(seconds) >= 0).all()


def test_smooth_maximum() -> None:
    assert smooth_maximum(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert smooth_maximum(3.0, 4.0, np.inf) == 4.0
    assert smooth_maximum(0.0, 0.0, 1.5) == 0.0
    assert smooth_maximum(np.array([0.0, 3.0]), 4.0, 1.0) == pytest.approx([4.0, 7.0])


def attention(streams: float) -> OpCost:
    return OpCost("attention", Cost(kv_bytes=1e6 * streams), 1, None, "float16", streams)


def test_blocks_beyond_a_whole_wave_have_it_to_themselves() -> None:
    """A100, 108 multiprocessors of two blocks: 256 blocks take as long as 216 + 108.

    MagicDec (arXiv 2408.11049) measured on 8 A100 (Llama-2-7B, 4 KV heads each) that 4000 more
    tokens cost 12.2 ms at batch 64, 7.1 at 48: 1.29 times as much per token.
    """
    device = replace(analytic("a100-sxm-80gb"), seconds_per_launch=0.0)
    times = {n: float(device.kernels.seconds(attention(n))) for n in (48, 192, 216, 256, 512)}
    per_block = times[216] / 216
    assert times[48] == pytest.approx(48 * per_block)
    assert times[192] == pytest.approx(192 * per_block)
    assert times[256] == pytest.approx(324 * per_block)
    assert times[512] == pytest.approx((432 + 108) * per_block)
    assert (times[256] / 256) / (times[192] / 192) == pytest.approx(
        12.21 / 64 / (7.06 / 48), rel=0.03
    )


def test_kernels_that_split_no_context_wait_for_one_block() -> None:
    """At batch 1 the time of a cached token does not shrink with the share of the heads.

    TensorRT-LLM, LLM-Inference-Bench: Llama-2-7B grows by 1.19 ms from 128 to 2048 tokens in and
    out on four A100, by 1.36 ms on one; reading a quarter of the caches would take 0.25 ms.
    """
    model, contexts = shape("llama-2-7b"), np.array([192, 3072])
    growth = {}
    stack = "a100-sxm-40gb@tensorrt-llm-2024"
    for name in (stack, f"4x{stack}", "4xa100-sxm-40gb"):
        steps = np.asarray(load_device(name).forward_seconds(model, 1, 1, contexts).median)
        growth[name] = float(steps[1] - steps[0])
    one, four, split = growth.values()
    assert one == pytest.approx(1.36e-3, rel=0.2)
    assert 1.5 * split < four <= one
    assert split == pytest.approx(0.25e-3, rel=0.3)


def test_collectives_are_latency_and_bytes() -> None:
    one, eight = analytic("a100-sxm-80gb"), analytic("8xa100-sxm-80gb")
    ops = forward_ops(shape("llama-2-7b"), 4, 1, 100, tensor_parallel=8)
    reduce = next(op for op in ops if op.name == "all_reduce")
    assert reduce.count == 64 and reduce.cost.link_bytes == 2 * 7 / 8 * (4 * 4096 * 2)
    expected = one.seconds_per_collective + reduce.cost.link_bytes / one.link_bandwidth
    assert eight.kernels.seconds(reduce) == pytest.approx(expected)
    with pytest.raises(UnpricedError, match="links"):
        replace(one, link_bandwidth=0.0).kernels.seconds(reduce)


def weights(form: str, head: str | None = None) -> ModelShape:
    return ModelShape.from_config(
        CONFIGS["llama-3-8b"], name="llama-3-8b", weight_format=form, head_format=head
    )


def test_peaks_and_bytes_of_quantised_weights() -> None:
    """Weight-only formats save bytes and cost widening; others run at their own peak."""
    h100 = load_device("h100-sxm@gpt-fast")

    def seconds(model: ModelShape, rows: int) -> float:
        return h100.forward_seconds(model, 1, rows, 0).median

    plain, narrow, fp8 = weights("float16"), weights("int8"), weights("fp8")
    assert 0.5 * seconds(plain, 1) < seconds(narrow, 1) < 0.9 * seconds(plain, 1)
    assert seconds(fp8, 1) < seconds(narrow, 1)
    # with many rows the multiply-adds decide: the same for weight-only, half of it in fp8
    assert seconds(narrow, 8192) == pytest.approx(seconds(plain, 8192), rel=0.1)
    assert seconds(fp8, 8192) < 0.75 * seconds(plain, 8192)


def test_formats_without_arithmetic_are_unpacked() -> None:
    """FP8 and FP4 run weight-only where a device does not multiply in them; others are refused."""
    a100 = load_device("a100-sxm-80gb")
    plain, fp8, fp4 = weights("float16"), weights("fp8"), weights("nvfp4")

    def seconds(model: ModelShape, rows: int) -> float:
        return a100.forward_seconds(model, 1, rows, 0).median

    assert seconds(fp4, 1) < seconds(fp8, 1) < 0.7 * seconds(plain, 1)  # fewer bytes
    assert seconds(fp8, 8192) == pytest.approx(seconds(plain, 8192), rel=0.05)  # the same peak
    with pytest.raises(UnpricedError, match=r"no peak for bfloat16.*`dtype: float16`"):
        load_device("t4").forward_seconds(replace(plain, dtype="bfloat16"), 1, 1, 0)


def test_gpt_fast_in_int8_and_int4() -> None:
    """meta-pytorch/gpt-fast README, Llama-2-7B on one A100: 104.9, 155.58, 196.8 tokens/s."""
    device = load_device("a100-sxm-80gb@gpt-fast")
    llama = CONFIGS["llama-2-7b"]
    for form, tokens_per_second in (
        ("float16", 104.9), ("int8", 155.58), ("int4-g32-tinygemm", 196.8)
    ):  # fmt: skip
        model = ModelShape.from_config(llama, name="7b", weight_format=form, head_format=form)
        seconds = device.forward_seconds(model, 1, 1, 105)
        assert 1 / seconds.median == pytest.approx(tokens_per_second, rel=0.06)
        assert seconds.low < 1 / tokens_per_second < seconds.high


def test_experts_are_one_kernel_of_all_that_were_chosen() -> None:
    device = replace(analytic("h100-sxm"), stack=IDEAL, seconds_per_launch=0.0)

    def seconds(chosen: int) -> float:
        cost = Cost(weight_bytes=2.0 * chosen * 4096 * 4096)
        matrix = Matrix(4, 4096, 4096, copies=chosen)
        return float(device.kernels.seconds(OpCost("expert_up", cost, 1, matrix, "float16")))

    assert seconds(8) == pytest.approx(4 * seconds(2), rel=0.05)
