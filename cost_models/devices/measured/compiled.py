"""A measured device whose rounds a backend compiles; see `compiled_form`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.devices.device import Device
from specplan.cost_models.devices.measured.compiled_form import LEAST, CompiledForm, fit_compiled
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import Provenance
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips


class CompiledDevice:
    """A measured device whose rounds are compiled; see `Device`.

    Args:
        base: the device as the interpreter was measured on it.
        backend: what compiles rounds.
        form: what that makes of times.
        version: of the backend, where it has one of its own.
    """

    kind: Literal["measured"] = "measured"
    lane_overlap = 0.0
    skips_dead = True

    def __init__(
        self, base: MeasuredDevice, backend: str, form: CompiledForm, version: str = ""
    ) -> None:
        self.base = base
        self.backend = backend
        self.version = version
        self.form = form
        self.name = base.name
        self.memory_bytes = base.memory_bytes
        self.shared_error = base.shared_error

    @property
    def provenance(self) -> Provenance:
        """Of the interpreter's times, with what compiles the rounds."""
        return self.base.provenance.compiled_by(self.backend, self.version)

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
        """One forward pass; see `Device`."""
        about, ran = (logit_rows, layers, skips), self.form.context
        time, at_ran = self._interpreted(shape, batch, tokens, context, *about)
        single = self.base.forward_seconds(shape, 1, 1, ran, *about).median  # is remembered
        model = shape.digest, shape.dtype
        compiled = self.form.pass_seconds(single, batch * tokens, model) + time.median - at_ran
        compiled = maximum(compiled, LEAST * single)
        return self._within(time, compiled, compiled / maximum(time.median, 1e-300))

    def _interpreted(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        *about: Any,
    ) -> tuple[Seconds, Quantity]:
        """A pass by the interpreter, and its median at the context of the rounds that ran.

        The table is searched once for arrays; it remembers single points.
        """
        usual, ran = self.base.forward_seconds, self.form.context
        if not any(isinstance(one, np.ndarray) for one in (batch, tokens, context)):
            time = usual(shape, batch, tokens, context, *about)
            return time, usual(shape, batch, tokens, ran, *about).median
        asked = np.broadcast_arrays(batch, tokens, context)[2]
        both = usual(shape, batch, tokens, np.stack((asked, np.full_like(asked, ran))), *about)
        ends = np.array((both.median, both.low, both.high))
        median, low, high = ends[:, 0]
        return Seconds(median, low, high, both.extrapolated), ends[0, 1]

    def prefill_seconds(
        self, shape: ModelShape, batch: Quantity, tokens: Quantity, cached: Quantity = 0
    ) -> Seconds:
        """A prompt; see `Device`."""
        time = self.base.prefill_seconds(shape, batch, tokens, cached)
        share = self.form.prompt_share(batch)
        return Seconds(share * time.median, share * time.low, share * time.high, time.extrapolated)

    def op_seconds(
        self, op_name: str, batch: Quantity, width: Quantity, moved: Quantity = 0.0
    ) -> Seconds:
        """One op that is no forward; see `Device`."""
        time = self.base.op_seconds(op_name, batch, width, moved)
        return self._share(time, self.form.share(op_name))

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes over a link; see `Device`."""
        return self.base.read_seconds(link, moved)

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; see `Device`."""
        return self._share(self.base.round_seconds(batch), self.form.others)

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on; see `Device`."""
        return f"{self.base.basis(shapes)}, and rounds by {self.backend} told from some that ran"

    def _share(self, time: Seconds, share: float) -> Seconds:
        return self._within(time, share * time.median, share)

    def _within(self, time: Seconds, compiled: Quantity, factor: Quantity) -> Seconds:
        """A time predicted from another, with the errors of that and of the form."""
        whole = maximum(compiled, 1e-300)
        down, up = (
            ((factor * (end - time.median) / whole) ** 2 + self.form.error**2) ** 0.5
            for end in (time.low, time.high)
        )
        low, high = compiled * maximum(1.0 - down, 0.0), compiled * (1.0 + up)
        return Seconds(compiled, low, high, time.extrapolated)


def compiled_by(device: Device, backend: str) -> Device:
    """The device as rounds take there that a backend compiles; itself where none were timed."""
    if not isinstance(device, MeasuredDevice):
        return device
    runs = device.table.compiled.get(backend)
    if not runs:
        return device
    return CompiledDevice(device, backend, fit_compiled(tuple(runs)), runs[-1].version)
