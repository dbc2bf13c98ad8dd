"""What a compiler makes of the times that the interpreter was measured with.

A compiled round is one call whose ops cannot be timed apart. So some whole rounds are run both
ways, and their times are told from the interpreter's by a form with few numbers:

    pass over some tokens = kernels x interpreted - dispatch x layers
    everything else       = others x interpreted

`kernels` is a number for each model: how long its matrices take in the compiler's own layout.
`dispatch` are the seconds that a layer costs in Python, which a compiled round does not spend.
Prompts are run by the interpreter either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.intervals import HALF_WIDTH_90, Seconds
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.cost_models.timing.compiled_runs import CompiledRun
from specplan.cost_models.timing.device import Device
from specplan.cost_models.timing.measured import MeasuredDevice
from specplan.cost_models.timing.measured_table import Provenance
from specplan.ir.blocks import NO_SKIPS, Skips

LEAST = 0.05
"""Of an interpreted pass, what a compiled one takes at least: where the form is taken beyond what
was run, it must not come out at nothing."""
MOST = 2.0
"""Of interpreted kernels, what compiled ones take at most; a bound of the fit."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CompiledForm:
    """The form's numbers.

    Attributes:
        kernels: by digest and number format of a model.
        dispatch: seconds per layer of a pass.
        others: share of what everything but passes takes.
        error: relative half width of the 90 % interval of a round, from rounds that were left out
            of the fit in turn.
    """

    kernels: Mapping[tuple[str, str], float]
    dispatch: float
    others: float
    error: float


def fit_compiled(runs: Sequence[CompiledRun]) -> CompiledForm:
    """The form that tells rounds best, by least squares of relative errors.

    Args:
        runs: at least one.
    """
    rows, models = _design(runs)
    least = min(one.seconds / one.layers for run in runs for one in run.passes)
    upper = np.array([*[MOST] * len(models), 1.0, 1.0])

    def solved(rows: Floats) -> Floats:
        from scipy.optimize import lsq_linear

        found: Floats = lsq_linear(rows, np.ones(len(rows)), (np.zeros_like(upper), upper)).x
        return found

    rows[:, len(models)] *= least  # so that all unknowns are shares of something
    numbers = solved(rows)
    missed = [rows @ numbers - 1.0]
    for left, row in enumerate(rows):
        others = np.delete(rows, left, axis=0)
        if np.linalg.matrix_rank(others) == rows.shape[1]:
            missed.append(np.array([row @ solved(others) - 1.0]))
    told = np.concatenate(missed[1:] or missed)
    return CompiledForm(
        kernels=dict(zip(models, map(float, numbers), strict=False)),
        dispatch=float(numbers[-2] * least),
        others=float(numbers[-1]),
        error=HALF_WIDTH_90 * float(np.sqrt(np.mean(told**2))),
    )


def _design(runs: Sequence[CompiledRun]) -> tuple[Floats, list[tuple[str, str]]]:
    """What each unknown adds to a round, in times of the round as it was run; and the models."""
    models = sorted({(one.model, one.dtype) for run in runs for one in run.passes})
    rows = np.zeros((len(runs), len(models) + 2))
    for row, run in zip(rows, runs, strict=True):
        for one in run.passes:
            row[models.index((one.model, one.dtype))] += one.seconds
            row[-2] -= one.layers
        row[-1] = run.others
        row /= run.ratio * run.interpreted
    return rows, models


class CompiledDevice:
    """A measured device whose rounds are compiled; see `Device`.

    Models of which no round was run compiled go by the mean of the others.

    Args:
        base: the device as the interpreter was measured on it.
        backend: what compiles rounds.
        form: what that makes of times.
    """

    kind: Literal["measured"] = "measured"
    lane_overlap = 0.0

    def __init__(self, base: MeasuredDevice, backend: str, form: CompiledForm) -> None:
        self.base = base
        self.backend = backend
        self.form = form
        self.name = base.name
        self.memory_bytes = base.memory_bytes
        self.shared_error = base.shared_error
        self._mean = float(np.mean(list(form.kernels.values())))

    @property
    def provenance(self) -> Provenance:
        """Of the interpreter's times, with what compiles the rounds."""
        return replace(self.base.provenance, backend=self.backend)

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
        time = self.base.forward_seconds(shape, batch, tokens, context, logit_rows, layers, skips)
        first, last = layers or (0, shape.num_layers)
        ran = last - first - len(skips) / 2.0
        kernels = self.form.kernels.get((shape.digest, shape.dtype), self._mean)
        return self._told(time, kernels, self.form.dispatch * ran)

    def prefill_seconds(self, shape: ModelShape, batch: Quantity, tokens: Quantity) -> Seconds:
        """A prompt, by the interpreter; see `Device`."""
        return self.base.prefill_seconds(shape, batch, tokens)

    def op_seconds(
        self, op_name: str, batch: Quantity, width: Quantity, moved: Quantity = 0.0
    ) -> Seconds:
        """One op that is no forward; see `Device`."""
        return self._told(self.base.op_seconds(op_name, batch, width, moved), self.form.others, 0.0)

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; see `Device`."""
        return self._told(self.base.round_seconds(batch), self.form.others, 0.0)

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on; see `Device`."""
        return f"{self.base.basis(shapes)}, and rounds by {self.backend} told from some that ran"

    def _told(self, time: Seconds, factor: float, saved: float) -> Seconds:
        """A time with what the compiler makes of it; what the form leaves open widens it."""
        median = maximum(time.median * factor - saved, LEAST * factor * time.median)
        whole = maximum(time.median, 1e-300)
        down, up = (
            ((end / whole - 1.0) ** 2 + self.form.error**2) ** 0.5 for end in (time.low, time.high)
        )
        low, high = median * maximum(1.0 - down, 0.0), median * (1.0 + up)
        return Seconds(median, low, high, time.extrapolated)


def compiled_by(device: Device, backend: str) -> Device:
    """The device as rounds take there that a backend compiles; itself where none were timed."""
    if not isinstance(device, MeasuredDevice):
        return device
    runs = device.table.compiled.get(backend)
    return CompiledDevice(device, backend, fit_compiled(runs)) if runs else device
