"""Analytic and measured devices: monotone, exact at anchors, honest outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.devices.device import (
    Device,
    UnpricedError,
    device_count,
    device_name,
    list_devices,
    load_device,
    similar_devices,
)
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import (
    ForwardRow,
    MeasuredTable,
    OpRow,
    PrefillRow,
    Provenance,
    RoundRow,
)
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.intervals import NO_TIME, Interval, Seconds, total
from specplan.cost_models.models.forward import forward_ops
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import shape

HERE = Provenance("two cores", "eager", 2, "2026-11-21", 8e9, {"torch": "2.13"})
MODEL = shape("llama-2-7b", "bfloat16")


def test_shipped_devices_load_and_cite_every_figure() -> None:
    assert set(list_devices()) >= {
        *("a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb"),
        *("h100-sxm", "h100-pcie", "h200", "b200", "b300", "gb200"),
        *("l4", "l40", "l40s", "a10", "a40", "rtx-3090", "rtx-4090", "rtx-pro-6000"),
        *("mi300x", "mi325x", "mi355x", "mi250x-gcd", "tpu-v4", "cpu-generic"),
        *("t4", "a6000", "rtx-5090", "rtx-6000-ada", "h20", "gh200", "gb300"),
    }
    for name in list_devices():
        device = load_device(name)
        assert isinstance(device, AnalyticDevice)
        assert device.name == name
        assert all(len(source) > 9 for source in device.sources.values())
        assert {"memory_bytes", "memory_bandwidth", "peak_flops"} <= set(device.sources)
        # parts of a peak are parts; a ridge point is between a CPU's and a Blackwell's
        for figure in ("compute", "memory", "attention_compute", "attention_memory"):
            assert 0.2 < getattr(device, f"{figure}_efficiency") <= 1.0
        peaks = device.peak_flops
        peak = peaks.get("bfloat16") or peaks["float16"]
        assert 1 < peak / device.memory_bandwidth < 450
        assert 0.05 < device.relative_error < 0.7


@pytest.mark.parametrize("name", list_devices())
@given(
    batch=st.integers(1, 64),
    tokens=st.integers(1, 256),
    context=st.integers(0, 8192),
    more=st.integers(1, 512),
)
@settings(max_examples=25)
def test_analytic_time_never_falls(
    name: str, batch: int, tokens: int, context: int, more: int
) -> None:
    device = load_device(name)
    assert isinstance(device, AnalyticDevice)
    if "bfloat16" not in device.peak_flops:  # a Turing GPU
        return
    base = device.forward_seconds(MODEL, batch, tokens, context)
    assert 0 < base.low <= base.median <= base.high
    for other in (
        device.forward_seconds(MODEL, batch + more, tokens, context),
        device.forward_seconds(MODEL, batch, tokens + more, context),
        device.forward_seconds(MODEL, batch, tokens, context + more),
    ):
        assert other.median >= base.median


def test_fitted_gemm_times_are_near_the_measured_ones() -> None:
    """Four GEMMs of a Llama-2-70B layer, microsoft/vidur profiles; fitted on Llama-2-7B."""
    tokens = np.array([1, 8, 32, 64, 128, 256, 512, 1024])
    measured = {
        "a100-sxm-80gb": (1072, 1096, 1120, 1125, 1297, 2116.5, 3910, 8128),
        "4xa100-sxm-80gb": (284, 296, 301.5, 307.5, 383, 588, 1038, 2115.5),
        "h100-sxm": (593, 575, 595.5, 599.5, 611, 719, 1169, 2759),
    }
    model = shape("llama-2-70b")
    for name, microseconds in measured.items():
        device = load_device(name)
        assert isinstance(device, AnalyticDevice)
        ops = forward_ops(model, 1, tokens, 0, 0, (0, 1), tensor_parallel=device.count)
        predicted = sum(device.kernels.seconds(op) for op in ops if op.matrix)
        errors = np.abs(predicted / (1e-6 * np.array(microseconds)) - 1)
        assert errors.mean() < 0.08 and errors.max() < 0.15, (name, errors)


def test_device_files_refuse_what_they_cannot_read(tmp_path: Path) -> None:
    good = {"schema_version": 1, "name": "x"} | {
        key: {"value": value, "source": "a data sheet"}
        for key, value in (
            ("memory_bytes", 1e9),
            ("memory_bandwidth", 1e10),
            ("peak_flops", {"float32": 1e11}),
        )
    }
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps(good))
    assert load_device(path).name == "x"
    for change, message in (
        ({"schema_version": 2}, "schema_version"),
        ({"bandwidth": {"value": 1, "source": "a"}}, "bandwidth"),
        ({"memory_bytes": 5}, "memory_bytes"),
        ({"memory_bytes": {"value": "much", "source": "a"}}, "much"),
        ({"peak_flops": {"value": 3, "source": "a"}}, "peak_flops"),
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(UsageError, match=message):
            load_device(path)
    with pytest.raises(UsageError, match="Known: a10, "):
        load_device("abacus")
    with pytest.raises(UsageError, match="cannot read"):
        load_device(tmp_path / "none.yaml")


def test_missing_peak_is_unpriced_and_says_so() -> None:
    with pytest.raises(UnpricedError, match="float64"):
        load_device("h200").forward_seconds(shape("llama-2-7b", "float64"), 1, 1, 1)


def row(batch: int, tokens: int, context: int, seconds: float) -> ForwardRow:
    return ForwardRow(
        seconds,
        0.9 * seconds,
        1.2 * seconds,
        5,
        model=MODEL.digest,
        dtype=MODEL.dtype,
        batch=batch,
        tokens=tokens,
        context=context,
    )


def table() -> MeasuredTable:
    rows = [
        row(b, t, c, b * (1.0 + 0.1 * t + 0.01 * c))
        for b in (1, 4)
        for t in (1, 4, 16)
        for c in (0, 100)
    ]
    return MeasuredTable(
        "here",
        HERE,
        [
            *rows,
            PrefillRow(2.0, 1.9, 2.1, 3, model=MODEL.digest, dtype=MODEL.dtype, batch=1, tokens=64),
            PrefillRow(
                4.0, 3.9, 4.1, 3, model=MODEL.digest, dtype=MODEL.dtype, batch=1, tokens=128
            ),
            OpRow(0.5, 0.4, 0.6, 3, op="accept", batch=1, width=4),
            OpRow(0.7, 0.6, 0.8, 3, op="accept:recursive", batch=1, width=4),
            RoundRow(0.25, 0.2, 0.3, 3, batch=1),
        ],
    )


def test_measured_is_exact_at_anchors_and_linear_between() -> None:
    device: Device = MeasuredDevice(table())
    for b in (1, 4):
        for t in (1, 4, 16):
            for c in (0, 100):
                seconds = device.forward_seconds(MODEL, b, t, c)
                assert seconds.median == b * (1.0 + 0.1 * t + 0.01 * c)
                assert not seconds.extrapolated
    between = device.forward_seconds(MODEL, 2, 10, 50)
    assert between.median == pytest.approx(2 * (1.0 + 1.0 + 0.5))
    assert not between.extrapolated
    assert device.prefill_seconds(MODEL, 1, 96).median == pytest.approx(3.0)
    assert device.op_seconds("accept", 1, 4).median == 0.5
    assert device.op_seconds("accept:recursive", 1, 4).median == 0.7
    assert device.op_seconds("accept:token", 1, 4).median == 0.5
    assert device.round_seconds(1).median == 0.25


@given(tokens=st.floats(17, 500), further=st.floats(1.1, 4.0))
def test_extrapolation_is_flagged_and_widens(tokens: float, further: float) -> None:
    device = MeasuredDevice(table())
    anchor = device.forward_seconds(MODEL, 1, 16, 0)
    near = device.forward_seconds(MODEL, 1, tokens, 0)  # type: ignore[arg-type]
    far = device.forward_seconds(MODEL, 1, further * tokens, 0)  # type: ignore[arg-type]
    assert near.extrapolated
    assert near.median == pytest.approx(1.0 + 0.1 * tokens)

    def width(value: Seconds) -> float:
        return (value.high - value.low) / value.median

    assert width(anchor) < width(near) < width(far)


def test_outside_in_every_direction() -> None:
    device = MeasuredDevice(table())
    assert device.forward_seconds(MODEL, 1, 4, 500).extrapolated
    assert device.forward_seconds(MODEL, 8, 4, 0).median == pytest.approx(8 * 1.4)
    below = MeasuredDevice(MeasuredTable("x", HERE, [row(1, 4, 50, 2.0), row(1, 8, 50, 1.0)]))
    low = below.forward_seconds(MODEL, 1, 2, 50)
    assert low.extrapolated and low.median == 2.0 and low.low < 1.8
    falling = below.forward_seconds(MODEL, 1, 16, 50)
    assert falling.median == 1.0  # noise never makes more work cheaper than measured
    single = below.forward_seconds(MODEL, 1, 4, 100)
    assert single.extrapolated and single.high >= 4.0


def test_what_was_not_measured_is_named() -> None:
    device = MeasuredDevice(MeasuredTable("bare", HERE))
    for ask in (
        lambda: device.forward_seconds(MODEL, 1, 1, 0),
        lambda: device.prefill_seconds(MODEL, 1, 1),
        lambda: device.op_seconds("grow", 1, 1),
        lambda: device.round_seconds(1),
    ):
        with pytest.raises(UnpricedError, match="specplan profile device"):
            ask()
    with pytest.raises(UnpricedError, match=r"layers 0:8"):
        MeasuredDevice(table()).forward_seconds(MODEL, 1, 1, 0, layers=(0, 8))


def test_table_saves_resumes_and_merges(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    first = table()
    first.add(
        ForwardRow(
            1.0,
            1.0,
            1.0,
            1,
            model="m",
            dtype="float32",
            batch=1,
            tokens=1,
            context=0,
            layers=(0, 4),
        )
    )
    first.save(path)
    again = MeasuredTable.load(path)
    assert again.rows == first.rows and again.provenance == HERE
    again.save(tmp_path / "b.json")
    assert (tmp_path / "b.json").read_bytes() == path.read_bytes()
    assert isinstance(load_device(path), MeasuredDevice)
    new = row(8, 1, 0, 3.0)
    grid = [*first.rows, new.key]
    assert again.missing(grid) == [new.key]
    again.add(new)
    assert again.missing(grid) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "else"},
        {"schema_version": 0},
        {"provenance": {}},
        {"op": [{"op": "grow"}]},
        {
            "op": [
                {
                    "op": "grow",
                    "batch": 1,
                    "width": 1,
                    "seconds": "1",
                    "low": 0,
                    "high": 2,
                    "runs": 1,
                }
            ]
        },
        {"round": [{"batch": 1, "seconds": 5, "low": 6, "high": 7, "runs": 1}]},
    ],
)
def test_broken_tables_are_usage_errors(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "t.json"
    table().save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError):
        MeasuredTable.load(path)


def test_times_sum_with_their_bounds() -> None:
    parts = [Seconds(1, 0.5, 2), Seconds(2, 1, 3, extrapolated=True)]
    assert total(parts) == Seconds(3, 1.5, 5, extrapolated=True)
    assert total([]) == NO_TIME
    product = Seconds(1, 0.5, 2).times(Interval(2, 1, 3))  # half widths by root of squares
    assert product == Seconds(2, pytest.approx(2 - 2**0.5), pytest.approx(2 + 5**0.5))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H200", "h200"),
        ("8xH200", "8xh200"),
        ("8Xh100-SXM@vllm", "8xh100-sxm@vllm"),
        ("L4", "l4"),
        ("RTX4090", "rtx-4090"),
        ("rtx_pro_6000", "rtx-pro-6000"),
        ("mi250x", "mi250x-gcd"),
    ],
)
def test_names_are_found_without_case_and_by_their_beginning(text: str, name: str) -> None:
    assert device_name(text) == name and load_device(text).name == load_device(name).name


@pytest.mark.parametrize(
    ("figure", "value", "words"),
    [
        ("memory_bandwidth", "0", "memory_bandwidth: 0 is not a number above 0"),
        ("memory_bytes", "0.0", "memory_bytes: 0.0 is not a number above 0"),
        ("peak_flops", "{float32: 0}", "peak_flops: 0 is not a number above 0"),
        ("attention_memory_efficiency", "0", "attention_memory_efficiency: 0 is not"),
        ("roofline_sharpness", "0", "roofline_sharpness: 0 is not a number above 0"),
        ("host_seconds", ".nan", "host_seconds: nan is not a number >= 0"),
    ],
)
def test_figures_that_no_device_has_are_refused(
    tmp_path: Path, figure: str, value: str, words: str
) -> None:
    figures = {"memory_bytes": "8", "memory_bandwidth": "8", "peak_flops": "{float32: 8}"}
    lines = (f"{n}: {{value: {v}, source: x}}" for n, v in {**figures, figure: value}.items())
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(["schema_version: 1", *lines]))
    with pytest.raises(UsageError, match=re.escape(words)):
        load_device(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h100", ("h100-pcie", "h100-sxm")),
        ("8xH100@vllm", ("8xh100-pcie@vllm", "8xh100-sxm@vllm")),
        ("a100-80gb", ("a100-pcie-80gb", "a100-sxm-80gb")),
        ("h100-smx", ("h100-pcie", "h100-sxm")),
        ("4090", ("rtx-4090",)),
        ("h30", ()),
        ("mi300a", ()),
        ("l40x", ()),
    ],
)
def test_a_name_that_is_not_exact_never_means_another_gpu(
    text: str, names: tuple[str, ...]
) -> None:
    assert similar_devices(text) == names and device_name(text) == text
    with pytest.raises(UsageError) as caught:
        load_device(text)
    assert all(f'"{name}"' in caught.value.remedy for name in names)
    assert names or caught.value.remedy.startswith("Known: a10, ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("h100-sxm", 1), ("8xh100-sxm@vllm", 8), ("8xH200", 8), ("16xsilicon:h200_sxm/vllm", 16),
        ("measured", 1), ("2X./my.yaml", 2), ("x8", 1),
    ],
)  # fmt: skip
def test_devices_in_a_name_are_counted_once_for_all(text: str, count: int) -> None:
    assert device_count(text) == count


def test_a_file_whose_name_begins_like_a_count_is_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "4xlab.json").write_text("{}")
    assert device_count("4xlab.json") == 1 and device_count("4xother.json") == 4
