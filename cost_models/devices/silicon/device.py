"""A device priced from measured kernel tables, and from its data sheet where they have no entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.roofline import AnalyticDevice, number_or_array
from specplan.cost_models.devices.silicon.package import systems_folder
from specplan.cost_models.devices.silicon.readings import Part, Place, read_parts
from specplan.cost_models.devices.silicon.tables import KernelTables
from specplan.cost_models.devices.stack import list_stacks
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError

SHEET_OF_SYSTEM = {
    "a100_sxm": "a100-sxm-80gb",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""Our device file for each system: it prices what the tables lack."""

ELSEWHERE_ERROR = 0.18
"""Relative half width (90 %) of a kernel's time on another machine with other software.

With it, the intervals hold 90.5 % of 792 comparisons: vidur's 264 matrix products of Llama-2-7B
(microsoft/vidur, A100 and H100, tensor parallel 1, 2 and 4) with the tables of three stacks.
"""


@dataclass(frozen=True)
class SiliconDevice:
    """A device whose matrix products, attention, experts and all-reduce were measured by others.

    Numbers or arrays go in and come out; one forward pass on numbers takes about a millisecond,
    an array of thousands hardly longer (see docs/kernel_tables.md).

    Attributes:
        name: how the user calls it.
        tables: the measured kernels.
        fallback: prices what the tables lack: small kernels, the host, unmeasured ops.
        kind: neither computed alone nor measured here.
    """

    name: str
    tables: KernelTables
    fallback: AnalyticDevice
    kind: Literal["tables"] = "tables"
    skips_dead: ClassVar[bool] = False

    @property
    def memory_bytes(self) -> float:
        """Memory of all devices; see `Device`."""
        return self.fallback.memory_bytes

    @property
    def shared_error(self) -> float:
        """That of the fallback: what the tables lack is priced by it; see `Device`."""
        return self.fallback.shared_error

    @property
    def lane_overlap(self) -> float:
        """That of the fallback; see `Device`."""
        return self.fallback.lane_overlap

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
        """One forward pass; see `Device`.

        The fallback's time, with that of every measured op exchanged for the measured one.
        """
        place = (shape, batch, tokens, context, logit_rows, layers, skips)
        whole = self.fallback.forward_seconds(*place)
        error = whole.high / whole.median - 1.0
        rest: Quantity = whole.median
        median: Quantity = 0.0
        spread: Quantity = 0.0
        outside: Quantity = False
        for part in self._parts(*place):
            if part.price is None:
                continue
            seconds, reading = part.price
            for op in part.ops:
                rest = rest - op.count * self.fallback.kernels.seconds(op)
            seconds = part.ops[0].count * seconds
            median = median + seconds
            spread = spread + seconds * np.hypot(reading.error, ELSEWHERE_ERROR)
            outside = outside | reading.outside
        rest = np.maximum(rest, 0.0)
        spread = np.minimum(spread, median) + error * rest
        median = median + rest
        return Seconds(
            number_or_array(median),
            number_or_array(np.maximum(median - spread, 0.0)),
            number_or_array(median + spread),
            bool(np.any(outside)),
        )

    def prefill_seconds(
        self, shape: ModelShape, batch: Quantity, tokens: Quantity, cached: Quantity = 0
    ) -> Seconds:
        """A prompt; see `Device`."""
        return self.forward_seconds(shape, batch, tokens - cached, cached, logit_rows=1)

    def op_seconds(
        self, op_name: str, batch: Quantity, width: Quantity, moved: Quantity = 0.0
    ) -> Seconds:
        """One op that is no forward; the tables have none of them."""
        return self.fallback.op_seconds(op_name, batch, width, moved)

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes over a link; the tables say nothing of them."""
        return self.fallback.read_seconds(link, moved)

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; the tables say nothing of the host."""
        return self.fallback.round_seconds(batch)

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on: the ops that were measured, and those that are computed."""
        measured: dict[str, None] = {}
        computed: dict[str, None] = {}
        files: set[str] = set()
        for shape in shapes:
            for part in self._parts(shape, 1, 2, 1024, None, None):
                names = computed if part.price is None else measured
                names.update(dict.fromkeys(op.name for op in part.ops))
                files.update(part.sources if part.price is not None else ())
        if not measured:
            return "is computed from data-sheet figures: the kernel tables have none of the ops"
        rest = ", ".join(["small kernels", *computed])
        return (
            f"rests on kernels measured for aiconfigurator ({', '.join(measured)}; "
            f"{', '.join(sorted(files))}) and is computed from data-sheet figures "
            f"for the rest ({rest})"
        )

    def _parts(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        logit_rows: Quantity | None,
        layers: tuple[int, int] | None,
        skips: Skips = NO_SKIPS,
    ) -> Iterable[Part]:
        devices = shape.sharing(self.fallback.count)
        ops = forward_ops(
            shape,
            batch,
            tokens,
            context,
            logit_rows,
            layers,
            tensor_parallel=devices,
            skips=skips,
        )
        first, last = layers if layers is not None else (0, shape.num_layers)
        kinds = shape.kinds(first, last, skips)
        return read_parts(self.tables, Place(shape, batch, tokens, context, kinds, devices), ops)


def load_silicon(name: str, count: int, fallback: Callable[[str], AnalyticDevice]) -> SiliconDevice:
    """A device by the names that the package has for hardware and software.

    Args:
        name: `system/stack`.
        count: devices that share every layer.
        fallback: gives one device by the name of its data sheet, and of its stack after an `@`.

    Raises:
        MissingCapabilityError: the extra `silicon` is not installed.
        UsageError: the package has no such tables, or we have no data sheet of the system.
    """
    system, _, stack = name.partition("/")
    tables = KernelTables.of(systems_folder(), system, stack)
    if system not in SHEET_OF_SYSTEM:
        raise UsageError(
            f"no data sheet for {system}, which prices what the tables lack",
            where=f"device silicon:{name}",
            remedy=f"There are sheets for {', '.join(SHEET_OF_SYSTEM)}.",
        )
    host = f"@{stack}" if stack in list_stacks() else ""
    sheet = fallback(SHEET_OF_SYSTEM[system] + host).times(count)
    prefix = f"{count}x" if count > 1 else ""
    return SiliconDevice(f"{prefix}silicon:{name}", tables, sheet)
