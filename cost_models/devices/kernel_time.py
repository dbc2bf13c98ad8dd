"""Times of single kernels on a device known from its data sheet, under a stack.

Form: t0 + ((F / e_f P)^p + (B / e_b W)^p)^(1/p); p -> infinity is the roofline of Williams,
Waterman and Patterson (2009). Matrix products on a GPU have a form of their own
(`matrix_time`); attention its own efficiencies, since it reads a cache that no other sequence
shares, and so does the scan of a recurrent state; collectives a latency and the bandwidth of the
links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specplan.cost_models.cost import OpCost, Quantity
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.devices.matrix_time import Tiling, smooth_maximum
from specplan.cost_models.devices.stack import Stack
from specplan.cost_models.models.number_formats import DTYPE_BYTES

FORMAT_BYTES = {**DTYPE_BYTES, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes per number of the formats that multiply-adds run in."""
COLLECTIVES = frozenset({"all_reduce", "all_gather"})
WEIGHT_ONLY = frozenset({"fp8", "fp4"})
"""Formats that engines unpack where a device does not multiply in them (vLLM, docs on FP8: W8A16 by
Marlin kernels on Ampere; the same for NVFP4 before Blackwell)."""


def _other_format(math: str, peaks: Mapping[str, float]) -> str:
    """How to run on a device without arithmetic in a format."""
    add = f"add peak_flops of {math} to the device file"
    for dtype in ("float16", "float32"):
        if math in DTYPE_BYTES and dtype in peaks:
            return (
                f"Set `dtype: {dtype}` for every model of the problem, as one starts an engine "
                f"there (`vllm serve --dtype {dtype}`), or {add}."
            )
    return f"Run in one of {', '.join(sorted(peaks))}, or {add}."


@dataclass(frozen=True)
class Kernels:
    """The figures of a device that single kernels depend on; see `AnalyticDevice`."""

    device: str
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    format_efficiency: Mapping[str, float]
    compute_efficiency: float
    memory_efficiency: float
    attention_compute_efficiency: float
    attention_memory_efficiency: float
    seconds_per_launch: float
    roofline_sharpness: float
    processors: float
    tile_half_area: float
    link_bandwidth: float
    seconds_per_collective: float
    stack: Stack

    def seconds(self, op: OpCost) -> Quantity:
        """One execution of an op, whose resources may be arrays.

        Raises:
            UnpricedError: the device has no peak for the format, or no links.
        """
        if op.name in COLLECTIVES:
            return self._collective(op)
        peak = self.peak(op.math)
        launch = self.seconds_per_launch * op.cost.launches
        if op.matrix is not None:
            return launch + self._matrix(op, peak)
        if op.name in ("attention", "state_scan"):
            return launch + self._attention(op, peak)
        compute = op.cost.flops / (self.compute_efficiency * peak)
        memory = op.cost.bytes / (self.memory_efficiency * self.memory_bandwidth)
        return launch + smooth_maximum(compute, memory, self.roofline_sharpness)

    def peak(self, math: str) -> float:
        """Peak operations per second in a number format, with what that format reaches of it.

        A format in `WEIGHT_ONLY` that the device has no arithmetic for takes the peak of 16 bits.
        """
        if math in WEIGHT_ONLY and math not in self.peak_flops:
            math = next((wide for wide in ("bfloat16", "float16") if wide in self.peak_flops), math)
        peak = self.peak_flops.get(math)
        if peak is None:
            raise UnpricedError(
                f"no peak for {math}",
                where=f"device {self.device}",
                remedy=_other_format(math, self.peak_flops),
            )
        return peak * self.format_efficiency.get(math, 1.0)

    def _matrix(self, op: OpCost, peak: float) -> Quantity:
        assert op.matrix is not None
        flops = self.compute_efficiency * self.stack.compute_efficiency * peak
        bandwidth = self.memory_efficiency * self.stack.memory_efficiency * self.memory_bandwidth
        if self.processors:
            tiling = Tiling(self.processors, flops, bandwidth, self.tile_half_area)
            seconds = tiling.seconds(op.matrix, op.cost.weight_bytes + op.cost.activation_bytes)
        else:
            seconds = smooth_maximum(
                op.cost.flops / flops, op.cost.bytes / bandwidth, self.roofline_sharpness
            )
        return seconds + self._dequantise(op)

    def _dequantise(self, op: OpCost) -> Quantity:
        """Weights stored narrower than they are multiplied are widened one by one."""
        assert op.matrix is not None
        if not self.stack.dequantise_operations:
            return 0.0
        weights = op.matrix.copies * (op.matrix.inputs * op.matrix.outputs)
        narrow = op.cost.weight_bytes < 0.75 * FORMAT_BYTES.get(op.math, 0.0) * weights
        vector = self.peak_flops.get("float32", self.peak(op.math))
        return narrow * (self.stack.dequantise_operations * weights / vector)

    def _attention(self, op: OpCost, peak: float) -> Quantity:
        stack, cost = self.stack, op.cost
        if stack.attention_vector_efficiency:
            compute = cost.flops / (stack.attention_vector_efficiency * self.peak("float32"))
        else:
            compute = cost.flops / (self.attention_compute_efficiency * peak)
        reach = self.attention_memory_efficiency * stack.attention_efficiency
        bandwidth = reach * self.memory_bandwidth
        memory = (cost.kv_bytes * self._last_wave(op) + cost.activation_bytes) / bandwidth
        seconds = smooth_maximum(compute, memory, self.roofline_sharpness)
        if stack.attention_block_share and self.processors:
            share = stack.attention_block_share * self.memory_bandwidth / self.processors
            seconds = np.maximum(seconds, cost.kv_bytes / np.maximum(op.streams, 1) / share)
        return seconds

    def _last_wave(self, op: OpCost) -> Quantity:
        """How much longer a part-empty last wave of blocks makes a kernel.

        FlashAttention and FlashInfer give a sequence's KV head to one block where there are
        enough of those to fill the GPU, and split contexts only where there are not. Blocks
        beyond a whole wave then have it to themselves; half a wave draws the whole bandwidth.
        """
        slots = self.stack.attention_blocks * self.processors
        if not slots:
            return 1.0
        streams = np.maximum(op.streams, 1.0)
        rest = streams % slots
        beyond = np.where(rest > 0, np.maximum(slots / 2.0, rest), 0.0)
        return np.where(streams > slots, (streams - rest + beyond) / streams, 1.0)

    def _collective(self, op: OpCost) -> Quantity:
        """Latency and bytes over the links: the alpha-beta model (Hockney 1994)."""
        if not self.link_bandwidth:
            raise UnpricedError(
                "no links to other devices",
                where=f"device {self.device}",
                remedy="Add link_bandwidth to the device file, or use one device.",
            )
        latency = self.stack.collective_latency * self.seconds_per_collective
        return latency + op.cost.link_bytes / self.link_bandwidth
