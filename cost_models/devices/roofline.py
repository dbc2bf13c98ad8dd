"""A device priced by its data sheet: a forward takes the sum of its kernels, or the host's time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

import numpy as np

from specplan.cost_models.cost import OpCost, Quantity
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.devices.figures import read_figures
from specplan.cost_models.devices.kernel_time import COLLECTIVES, Kernels
from specplan.cost_models.devices.stack import IDEAL, Stack
from specplan.cost_models.intervals import Seconds, beside
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.placement import with_reads
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError

OWN_ERROR = 0.08
"""Relative half width (90 %) of the error that a forward's time does not share with the others.

Speedups and cost ratios of published rows, each the ratio of two times, are off by 4 to 6 % in the
mean (docs/accuracy.md: Leviathan, MagicDec, Spec-Bench, Sequoia), by 11 % in nine of ten: 8 % each.
"""


DATA_SHEET = "is computed from data-sheet figures"
"""What times of such a device rest on; an engine's stack is named behind it."""


_DIVISORS = (
    "memory_bytes", "memory_bandwidth", "peak_flops", "format_efficiency", "compute_efficiency",
    "memory_efficiency", "attention_compute_efficiency", "attention_memory_efficiency",
    "roofline_sharpness",
)  # fmt: skip
"""Figures of which zero leaves no device to price."""


@dataclass(frozen=True)
class AnalyticDevice:
    """A device, or several that share each layer, known from its data sheet.

    Without the optional figures it is the ideal roofline.

    Attributes:
        name: how the user calls it.
        memory_bytes: capacity of all devices, bytes.
        memory_bandwidth: bytes per second of one.
        peak_flops: dense peak of one per number format, operations per second.
        format_efficiency: further factor on `compute_efficiency`, per number format.
        compute_efficiency: reachable part of the peak in matrix products, e_f.
        memory_efficiency: reachable part of the bandwidth in matrix products, e_b.
        attention_compute_efficiency: the same of the peak in attention.
        attention_memory_efficiency: the same of the bandwidth in attention.
        seconds_per_launch: t0, per matrix product or attention.
        seconds_per_small_kernel: per norm, rotation, activation or residual.
        elementwise_traffic: bytes that unfused small kernels move, per byte that the matrix
            products of a layer read and write of activations, at full bandwidth.
        roofline_sharpness: p of the smooth maximum; infinity for the hard one.
        processors: streaming multiprocessors or compute units; 0 where kernels have no tiles.
        tile_half_area: see `matrix_time.Tiling`.
        link_bandwidth: reachable bytes per second that one device sends to the others; 0 where
            there are no links.
        seconds_per_collective: latency of an all-reduce.
        host_bandwidth: reachable bytes per second from the host's memory to one device; 0 where
            it is not known.
        disk_bandwidth: the same from a disk, of all devices together.
        host_seconds: a round's glue.
        lane_overlap: see `Device`; 0 where the sheet does not say, at most 1.
        relative_error: half width of the 90 % interval of a forward, relative.
        sources: where each figure comes from, by attribute.
        stack: the software that launches the kernels.
        count: devices under tensor parallelism.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    format_efficiency: Mapping[str, float] = field(default_factory=dict)
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    attention_compute_efficiency: float = 1.0
    attention_memory_efficiency: float = 1.0
    seconds_per_launch: float = 0.0
    seconds_per_small_kernel: float = 0.0
    elementwise_traffic: float = 0.0
    roofline_sharpness: float = math.inf
    processors: float = 0.0
    tile_half_area: float = 0.0
    link_bandwidth: float = 0.0
    seconds_per_collective: float = 0.0
    host_bandwidth: float = 0.0
    disk_bandwidth: float = 0.0
    host_seconds: float = 0.0
    lane_overlap: float = 0.0
    relative_error: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    stack: Stack = IDEAL
    count: int = 1
    kind: Literal["analytic"] = "analytic"
    skips_dead: ClassVar[bool] = False

    @classmethod
    def from_yaml(
        cls, text: str, where: str = "device file", stack: Stack = IDEAL
    ) -> AnalyticDevice:
        """Read a device file; each figure there is `{value: ..., source: ...}`.

        Raises:
            UsageError: not YAML, an unknown or missing key, a figure without a source, or one that
                no device has.
        """
        plain = ("name", "sources", "stack", "count", "kind")
        figures = read_figures(
            text,
            where,
            "device",
            known=[item.name for item in fields(cls) if item.name not in plain],
            required=("memory_bytes", "memory_bandwidth", "peak_flops"),
            by_format=("peak_flops", "format_efficiency"),
            positive=_DIVISORS,
        )
        if figures.values.get("lane_overlap", 0.0) > 1.0:
            raise UsageError(
                "lane_overlap is more than 1",
                where=where,
                remedy="It is the part, 0 to 1, of the shorter lanes that the longest hides.",
            )
        return cls(name=figures.name, sources=figures.sources, stack=stack, **figures.values)

    def times(self, count: int) -> AnalyticDevice:
        """That many of this device sharing every layer (tensor parallelism).

        Raises:
            UsageError: less than one, or the device has no links to others.
        """
        if count < 1 or (count > 1 and not self.link_bandwidth):
            raise UsageError(
                f"cannot share layers over {count} of it",
                where=f"device {self.name}",
                remedy="Use one device, or add its link_bandwidth to the device file.",
            )
        if count == 1:
            return self
        return replace(
            self,
            name=f"{count}x{self.name}",
            memory_bytes=count * self.memory_bytes,
            count=count * self.count,
        )

    @property
    def kernels(self) -> Kernels:
        """The figures that times of single kernels depend on."""
        taken = {
            item.name: getattr(self, item.name) for item in fields(Kernels) if item.name != "device"
        }
        return Kernels(device=self.name, **taken)

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        logit_rows: Quantity | None = None,
        layers: tuple[int, int] | None = None,
        skips: Skips = NO_SKIPS,
    ) -> Seconds:
        """One forward pass, the sum of its ops; see `Device`.

        Batch, tokens, context and logit rows may be NumPy arrays that broadcast; the seconds
        then hold arrays.
        """
        if shape.placement is not None:
            place = (batch, tokens, context, logit_rows, layers, skips)
            time = self.forward_seconds(shape.in_memory, *place)
            return with_reads(self, shape, time, tokens, logit_rows, layers)
        ops = forward_ops(
            shape,
            batch,
            tokens,
            context,
            logit_rows,
            layers,
            tensor_parallel=shape.sharing(self.count),
            skips=skips,
        )
        first, last = layers if layers is not None else (0, shape.num_layers)
        kinds = shape.kinds(first, last, skips)
        small = self.stack.kernels_per_layer * kinds.blocks / 2
        small += self.stack.kernels_per_mixture * kinds.mixtures
        seconds = self.ops_seconds(ops, small)
        if self.stack.dispatch_seconds:
            launches = small + sum(op.count * op.cost.launches for op in ops)
            eager = batch * tokens > self.stack.captured_tokens
            seconds = np.maximum(seconds, eager * self.stack.dispatch_seconds * launches)
        if not (isinstance(logit_rows, int) and logit_rows == 0):
            seconds = seconds + self.stack.seconds_per_forward
            seconds = seconds + self.stack.seconds_per_sequence * batch
        return Seconds.relative(number_or_array(seconds), self._error)

    def prefill_seconds(
        self, shape: ModelShape, batch: Quantity, tokens: Quantity, cached: Quantity = 0
    ) -> Seconds:
        """A prompt; see `Device`."""
        return self.forward_seconds(shape, batch, tokens - cached, cached, logit_rows=1)

    def op_seconds(
        self, op_name: str, batch: Quantity, width: Quantity, moved: Quantity = 0.0
    ) -> Seconds:
        """One op that is no forward; see `Device`.

        A data sheet says nothing of them. Acceptance of draft tokens takes the stack's
        `acceptance_seconds`, every other op one launch, and the bytes that an op moves go at the
        bandwidth of attention, which reads the same caches. The interval is wide: MagicDec's
        rounds take 0 to 1.7 ms more than their parts, 1.35 ms in the median (arXiv 2408.11049).
        """
        accepts = op_name.split(":")[0] == "accept" and np.all(np.asarray(width) > 0)
        bandwidth = self.count * self.memory_bandwidth * self.attention_memory_efficiency
        seconds: Quantity = self.seconds_per_launch
        if accepts:
            each = self.stack.acceptance_seconds_per_sequence
            seconds = np.maximum(seconds, self.stack.acceptance_seconds + each * batch)
        seconds = seconds + moved / bandwidth
        return Seconds(seconds, 0.0 * seconds, 1.5 * seconds)

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes over a link; see `Device`. Devices that share each layer read their part of it."""
        bandwidth = self.count * self.host_bandwidth if link == "host" else self.disk_bandwidth
        if not bandwidth:
            raise UnpricedError(
                f"the bandwidth from {link} is not known",
                where=f"device {self.name}",
                remedy=f"Add {link}_bandwidth to a device file, or give placement.bandwidth.",
            )
        return Seconds.relative(moved / bandwidth, self._error)

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on; see `Device`."""
        return f"{DATA_SHEET}; {self.stack.basis}" if self.stack.basis else DATA_SHEET

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; see `Device`. An engine's step stands in the place of the sheet's."""
        seconds = self.stack.seconds_per_step or self.host_seconds
        return Seconds(seconds, 0.0, 2.0 * seconds)

    @property
    def shared_error(self) -> float:
        """All of the error of a forward but `OWN_ERROR`; see `Device`."""
        return float(beside(self._error, OWN_ERROR))

    @property
    def _error(self) -> float:
        return math.hypot(self.relative_error, self.stack.relative_error)

    def ops_seconds(self, ops: tuple[OpCost, ...], small: float) -> Quantity:
        """Device time of some ops and of `small` kernels besides them, seconds."""
        kernels = self.kernels
        seconds: Quantity = small * self.seconds_per_small_kernel
        moved: Quantity = 0.0
        for op in ops:
            seconds = seconds + op.count * kernels.seconds(op)
            if op.matrix is not None and op.name not in ("lm_head", *COLLECTIVES):
                moved = moved + op.count * op.cost.activation_bytes
        traffic = self.elementwise_traffic * self.stack.elementwise_fusion
        return seconds + traffic * moved / self.memory_bandwidth


def number_or_array(value: Quantity) -> Quantity:
    """A float of an array without dimensions; arrays as they are."""
    return float(value) if np.ndim(value) == 0 else value
