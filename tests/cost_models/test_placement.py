"""Layers outside of memory: what a pass takes, what memory holds, and what cannot be placed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.rows import ForwardRow, PrefillRow, ReadRow
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.placement import overlapped, place
from specplan.ir.errors import UsageError
from tests.planner.checkpoints import CONFIG

SHAPE = ModelShape.from_config({**CONFIG, "num_hidden_layers": 4}, dtype="float32")
LAYER = 8 * (8 + 2 * 4) + 8 * 8 + 3 * 8 * 12 + 2 * 8
"""Parameters of one: queries, keys and values, output, three matrices of the MLP, two norms."""


@pytest.mark.parametrize(
    ("reads", "layer", "before", "seconds"),
    [
        ([3, 3, 3, 3], 1, 0, 4 * 3 + 1),  # reads follow each other, only the last layer shows
        ([3, 3, 3, 3], 5, 0, 3 + 4 * 5),  # the first read shows, layers follow each other
        ([3, 3, 3, 3], 5, 2, 3 + 4 * 5),  # it hides 2 of 3 seconds of the first read
        ([3, 3, 3, 3], 5, 9, 9 + 4 * 5),
        ([3, 3, 3, 3], 1, 7, 8 + 3 + 3 + 1),  # two are there at 6, a buffer is free at 8
        ([1, 9, 1, 1], 2, 0, 1 + 9 + 3 * 2),  # the third is read while the second runs
        ([4, 1, 6], 3, 0, 7 + 6 + 3),  # the third's buffer is free at 7
    ],
)
def test_reading_and_computing_by_hand(
    reads: list[float], layer: float, before: float, seconds: float
) -> None:
    assert overlapped(reads, layer, before) == seconds


def a_device(**figures: float) -> AnalyticDevice:
    return AnalyticDevice("toy", 1e9, 1e9, {"float32": 1e12}, **figures)


def test_a_pass_reads_each_placed_layer_once_whatever_its_width() -> None:
    device = a_device(disk_bandwidth=1e6, host_bandwidth=1e7)
    on_disk = replace(SHAPE, placement=place(SHAPE, "disk"))
    read = 4 * LAYER / 1e6  # float32
    for tokens in (1, 8, 64):
        memory = device.forward_seconds(SHAPE, 1, tokens, 0).median
        head = SHAPE.vocab_size * 8 / (SHAPE.matmul_parameters)
        last = memory * (1 - head) / 4 + memory * head
        time = device.forward_seconds(on_disk, 1, tokens, 0).median
        assert time == pytest.approx(4 * read + last, rel=1e-12)
    # Arrays give what numbers give.
    widths = np.array([1.0, 8.0, 64.0])
    several = device.forward_seconds(on_disk, 1, widths, 0).median
    assert np.ravel(several)[2] == pytest.approx(time)
    # Three of four from the host, over a link ten times as fast; the first layer is in memory.
    three = replace(SHAPE, placement=place(SHAPE, "host", 3))
    memory = device.forward_seconds(SHAPE, 1, 1, 0).median
    layer = memory * (1 - head) / 4
    expected = 3 * read / 10 + layer + memory * head
    assert device.forward_seconds(three, 1, 1, 0).median == pytest.approx(expected)
    # The layers in memory alone take what they take there; so do draft passes that stop in them.
    low = device.forward_seconds(three, 1, 1, 0, 0, (0, 1))
    assert low == device.forward_seconds(SHAPE, 1, 1, 0, 0, (0, 1))
    # A bandwidth that the problem gives goes before the device's.
    given = replace(SHAPE, placement=place(SHAPE, "disk", None, 2e6))
    time = device.forward_seconds(given, 1, 1, 0).median
    assert time == pytest.approx(2 * read + layer + memory * head)


def test_measured_reads_are_added_to_measured_passes() -> None:
    timing = {"low": 0.0, "high": 1.0, "runs": 4}
    about = {"model": SHAPE.digest, "dtype": "float32", "batch": 1}
    rows = [ForwardRow(tokens=n, context=0, seconds=0.010, **about, **timing) for n in (1, 2)] + [
        PrefillRow(tokens=1024, seconds=0.2, **about, **timing),
        ReadRow(link="disk", moved=1000, seconds=0.05, **timing),
    ]
    here = Provenance("cpu", "eager", 1, "2026-11-27", 1e9)
    device = MeasuredDevice(MeasuredTable("here", here, rows))
    placed = replace(SHAPE, placement=place(SHAPE, "disk"))
    read = 0.05 * 4 * LAYER / 1000
    time = device.forward_seconds(placed, 1, 1, 0).median
    assert 4 * read < time < 4 * read + 0.010
    assert device.forward_seconds(SHAPE, 1, 1, 0).median == 0.010
    # A prompt of 1024 tokens is read in two passes.
    prompt = device.prefill_seconds(placed, 1, 1024).median
    assert 2 * 4 * read < prompt < 2 * 4 * read + 0.2
    with pytest.raises(UsageError, match="reading from host was not measured"):
        device.forward_seconds(replace(SHAPE, placement=place(SHAPE, "host")), 1, 1, 0)


def test_memory_holds_two_of_the_placed_layers() -> None:
    placed = replace(SHAPE, placement=place(SHAPE, "host", 3))
    assert SHAPE.weight_bytes - placed.resident_bytes == 4 * LAYER
    assert placed.in_memory == SHAPE


def test_what_cannot_be_placed_or_priced() -> None:
    for count in (2, 5):
        with pytest.raises(UsageError, match=f"{count} layers are to be read"):
            place(SHAPE, "disk", count)
    placed = replace(SHAPE, placement=place(SHAPE, "disk"))
    with pytest.raises(UsageError, match="bandwidth from disk is not known"):
        a_device().forward_seconds(placed, 1, 1, 0)


def test_sequoia_offloading_on_an_l40() -> None:
    """Llama-2-70B in float16 from host memory: 5.7 s per token without speculation, as published.

    Sequoia (arXiv 2402.12374), the table of offloading on an L40: the bandwidth of the data sheet
    is from that figure; a tree of 768 nodes takes 6.8 s (10.30 tokens, 0.66 s each), its drafts by
    a 7B model and the host's part included, of which ours are the target's pass.
    """
    shape = ModelShape.from_config(
        {
            "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
            "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
            "vocab_size": 32000, "max_position_embeddings": 4096,
        },
        dtype="float16",
    )  # fmt: skip
    device = load_device("l40")
    placed = replace(shape, placement=place(shape, "host"))
    plain, tree = (device.forward_seconds(placed, 1, n, 200) for n in (1, 769))
    assert plain.median == pytest.approx(5.7, rel=0.03)
    assert plain.median <= tree.median < 6.8
    assert isinstance(plain, Seconds) and placed.resident_bytes < 5e9
