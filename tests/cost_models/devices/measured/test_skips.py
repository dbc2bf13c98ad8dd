"""Passes without some blocks: data sheets add ops up, measured devices lie between four rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.devices.device import UnpricedError, load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.rows import ForwardRow
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import shape

LLAMA: ModelShape = shape("llama-2-7b", "float16")
INNER = range(1, 31)
SETS = {
    NO_SKIPS: 32.0,
    Skips.of(INNER): 17.0,
    Skips.of((), INNER): 11.0,
    Skips.of(INNER, INNER): 2.0,
}
"""Milliseconds: half an attention and 0.7 an MLP each, and a whole one that gains by both."""


def table() -> MeasuredTable:
    measured = MeasuredTable("here", Provenance("x", "eager", 1, "2026-11-21", 1e12))
    for skips, seconds in SETS.items():
        for context in (0, 100):
            time = seconds * (1.0 + context / 1000)
            measured.add(
                ForwardRow(
                    time, 0.9 * time, 1.1 * time, 5, model=LLAMA.digest, dtype=LLAMA.dtype,
                    batch=1, tokens=1, context=context, skip=skips.words,
                )
            )  # fmt: skip
    return measured


def seconds(skips: Skips, context: float = 0) -> float:
    return MeasuredDevice(table()).forward_seconds(LLAMA, 1, 1, context, 1, None, skips).median


def test_measured_sets_are_what_was_measured() -> None:
    for skips, expected in SETS.items():
        assert seconds(skips) == pytest.approx(expected)
        assert seconds(skips, 50) == pytest.approx(expected * 1.05)


def test_other_sets_lie_between() -> None:
    """Of 30 attentions and 30 MLPs: some of one kind on a line, of both on a plane's square."""
    assert seconds(Skips.of(range(1, 16))) == pytest.approx(32 - 0.5 * 15)
    assert seconds(Skips.of((), range(4, 14))) == pytest.approx(32 - 0.7 * 10)
    both = Skips.of(range(1, 16), range(1, 11))
    x, y = 0.5, 1 / 3
    expected = (1 - x) * (1 - y) * 32 + x * (1 - y) * 17 + (1 - x) * y * 11 + x * y * 2
    assert seconds(both) == pytest.approx(expected)
    assert seconds(Skips.of([5])) == seconds(Skips.of([9])), "blocks of one kind count alike"


def test_a_set_that_was_measured_is_priced_by_its_own_rows() -> None:
    """Others lie between the largest sets, whichever row comes last."""
    measured, own = table(), Skips.of(range(1, 16), range(1, 11))
    measured.add(
        ForwardRow(
            3.0, 3.0, 3.0, 5, model=LLAMA.digest, dtype=LLAMA.dtype, batch=1, tokens=1, context=0,
            skip=own.words,
        )
    )  # fmt: skip
    for skips, expected in ((own, 3.0), (Skips.of([5]), 31.5), (Skips.of(INNER, INNER), 2.0)):
        time = MeasuredDevice(measured).forward_seconds(LLAMA, 1, 1, 0, 1, None, skips)
        assert time.median == pytest.approx(expected)


def test_no_more_than_was_left_out() -> None:
    assert seconds(Skips.of(range(32), range(32))) == pytest.approx(2.0)


def test_intervals_and_arrays() -> None:
    device = MeasuredDevice(table())
    skips = Skips.of(range(1, 16), [3])
    one = device.forward_seconds(LLAMA, 1, 1, 50, 1, None, skips)
    assert one.low < one.median < one.high and not one.extrapolated
    many = device.forward_seconds(LLAMA, np.array([1, 1]), 1, np.array([50, 0]), 1, None, skips)
    assert many.median[0] == pytest.approx(one.median)  # type: ignore[index]
    assert device.forward_seconds(LLAMA, 1, 1, 500, 1, None, skips).extrapolated


def test_what_was_not_measured_is_stated() -> None:
    plain = MeasuredTable("here", table().provenance)
    plain.add(next(row for row in table().rows.values() if not row.key[-1]))
    device = MeasuredDevice(plain)
    with pytest.raises(UnpricedError, match="no forward passes without some blocks of model"):
        device.forward_seconds(LLAMA, 1, 1, 0, 1, None, Skips.of([1]))
    with pytest.raises(UnpricedError, match=r"without some blocks.*layers 0:8"):
        MeasuredDevice(table()).forward_seconds(LLAMA, 1, 1, 0, 1, (0, 8), Skips.of([1]))


def test_tables_are_read_back_and_old_ones_too(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table().save(path)
    assert MeasuredTable.load(path).rows == table().rows
    document = json.loads(path.read_text())
    for entry in document["forward"]:
        entry.pop("skip")
    document["forward"] = document["forward"][:1]
    path.write_text(json.dumps(document))
    (row,) = MeasuredTable.load(path).rows.values()
    assert isinstance(row, ForwardRow) and row.skip == () and row.whole
    document["forward"][0]["skip"] = ["layer.1"]
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="names no block"):
        MeasuredTable.load(path)


def test_rows_without_blocks_do_not_bend_the_fit() -> None:
    device = MeasuredTable("here", table().provenance)
    for tokens in (1, 2, 4, 8, 16, 32, 64):
        time = 0.01 + 0.001 * tokens
        for skips in SETS:
            row_seconds = time if not skips else 1e-6
            device.add(
                ForwardRow(
                    row_seconds, row_seconds, row_seconds, 5, model=LLAMA.digest, dtype=LLAMA.dtype,
                    batch=1, tokens=tokens, context=0, skip=skips.words,
                )
            )  # fmt: skip
    fit = device.fit(LLAMA)
    assert fit is not None and fit.rows == 7
    part = fit.forward_seconds(LLAMA, 1, 1, 0, None, None, Skips.of(INNER, INNER))
    assert float(part) < 0.2 * float(fit.forward_seconds(LLAMA, 1, 1, 0))


@pytest.mark.parametrize("name", ["h100-sxm@vllm", "cpu-generic", "4xh100-sxm"])
def test_data_sheets_add_up_block_by_block(name: str) -> None:
    device = load_device(name)
    whole = device.forward_seconds(LLAMA, 1, 1, 100, 0).median
    one, other = Skips.of([3, 4]), Skips.of((), [7])
    both = Skips.of([3, 4], [7])
    saved = [
        whole - device.forward_seconds(LLAMA, 1, 1, 100, 0, None, skips).median
        for skips in (one, other, both)
    ]
    assert min(saved) > 0
    assert saved[2] == pytest.approx(saved[0] + saved[1])
    nothing = Skips.of(range(32), range(32))
    assert device.forward_seconds(LLAMA, 1, 1, 100, 0, None, nothing).median < 1e-6 * whole


def test_ops_of_a_pass_without_blocks() -> None:
    """Four projections' worth of an attention go with it, two all-reduces become one."""
    names = {op.name: op.count for op in forward_ops(LLAMA, 1, 1, 9, 1, tensor_parallel=2)}
    skips = Skips.of([3, 4, 5], [7])
    part = forward_ops(LLAMA, 1, 1, 9, 1, tensor_parallel=2, skips=skips)
    left = {op.name: op.count for op in part}
    assert names["attention"] == 32 and left["attention"] == 29
    assert left["query_key_value"] == left["attention_output"] == 29
    assert left["mlp_up"] == left["mlp_down"] == 31
    assert names["all_reduce"] == 64 and left["all_reduce"] == 60
    within = forward_ops(LLAMA, 1, 1, 9, 1, (4, 6), skips=skips)
    assert "attention" not in {op.name for op in within}
