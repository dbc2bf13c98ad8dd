"""What a compiler makes of the times that the interpreter was measured with.

A compiled round is one call, whose ops cannot be timed one by one. Some whole rounds are run both
ways, and a form with few coefficients predicts compiled times from the interpreter's:

    pass over some tokens = kernels x interpreted - dispatch x layers
    everything else       = others x interpreted

`kernels` is a number for each model: how long its matrices take in the compiler's own layout.
`dispatch` are the seconds that a layer costs in Python, which a compiled round does not spend.
Prompts take their measured share of the interpreter's time: 1 where it runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.devices.device import Device
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import Provenance
from specplan.cost_models.intervals import HALF_WIDTH_90, Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips

LEAST, MOST = 0.05, 2.0
"""Of an interpreted pass, what a compiled one takes at least and at most."""
LEAST_ERROR = 0.03
"""Relative half width of a round's 90 % interval, however well the form predicts those that ran."""
PRIOR = 0.005
"""Weight of what is taken where no round says otherwise (kernels as interpreted, half of the
dispatch, all of the rest) against a relative error, so that each round can be left out."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CompiledForm:
    """The form's numbers.

    Attributes:
        kernels: by digest and number format of a model.
        dispatch: seconds per layer of a pass.
        others: share of what everything but passes takes.
        error: relative half width of the 90 % interval of a round.
        prompts: share of what prompts take, by batch; 1 for all where it is empty.
    """

    kernels: Mapping[tuple[str, str], float]
    dispatch: float
    others: float
    error: float
    prompts: Mapping[int, float] = field(default_factory=dict)

    def prompt_share(self, batch: Quantity) -> Quantity:
        """Of the interpreter's time for prompts, between measured batches by a line."""
        if not self.prompts:
            return 1.0
        batches = sorted(self.prompts)
        return np.interp(batch, batches, [self.prompts[one] for one in batches])

    def pass_seconds(self, seconds: Quantity, layers: float, model: tuple[str, str]) -> Quantity:
        """Passes of a model that took so long, and ran so many layers, by the interpreter."""
        compiled: Quantity = self.factor(model) * seconds - self.dispatch * layers
        return maximum(compiled, LEAST * seconds)

    def factor(self, model: tuple[str, str]) -> float:
        """On the kernels of a model; the mean of all where no round of it was run compiled."""
        known = self.kernels.get(model)
        return fmean(self.kernels.values()) if known is None else known

    def ratio(self, run: CompiledRun) -> float:
        """What the form makes of a round, over what it took interpreted."""
        passes = (
            self.pass_seconds(one.seconds, one.layers, (one.model, one.dtype)) for one in run.passes
        )
        return float(sum(passes) + self.others * run.others) / run.interpreted


def fit_compiled(runs: Sequence[CompiledRun]) -> CompiledForm:
    """The form that predicts rounds best, by least squares of relative errors.

    Its error is that of what rounds are missed by, with the unknowns counted. Where there are no
    more rounds than these, it is Student's of what each is missed by where the others are fitted.

    Args:
        runs: at least one.
    """
    models = sorted({(one.model, one.dtype) for run in runs for one in run.passes})
    form, spare = _fitted(runs, models), len(runs) - len(models) - 2
    if spare > 0:
        error = HALF_WIDTH_90 * float(np.sqrt(sum(_missed(form, run) ** 2 for run in runs) / spare))
    else:
        error = _error_left_out(runs, models)
    by_batch: dict[int, list[float]] = {}
    for run in runs:
        if len(run.passes) == 1:  # of the target alone
            by_batch.setdefault(run.batch, []).append(run.prompts)
    prompts = {batch: median(shares) for batch, shares in by_batch.items()}
    return replace(form, error=max(error, LEAST_ERROR), prompts=prompts)


def _error_left_out(runs: Sequence[CompiledRun], models: Sequence[tuple[str, str]]) -> float:
    from scipy.stats import t

    left = (_fitted([*runs[:place], *runs[place + 1 :]], models) for place in range(len(runs)))
    missed = [_missed(form, run) for form, run in zip(left, runs, strict=True)]
    quantile = float(t.ppf(0.95, max(len(runs) - 1, 1)))
    return quantile * float(np.sqrt(np.mean(np.square(missed))))


def _missed(form: CompiledForm, run: CompiledRun) -> float:
    return form.ratio(run) / run.ratio - 1.0


def _fitted(runs: Sequence[CompiledRun], models: Sequence[tuple[str, str]]) -> CompiledForm:
    """The form without its error."""
    from scipy.optimize import lsq_linear

    each = [one.seconds / one.layers for run in runs for one in run.passes if one.layers]
    layer = min(each, default=0.0)  # seconds, so that all unknowns are shares
    rows = np.zeros((len(runs), len(models) + 2))
    for row, run in zip(rows, runs, strict=True):
        for one in run.passes:
            row[models.index((one.model, one.dtype))] += one.seconds
            row[-2] -= one.layers * layer
        row[-1] = run.others
        row /= run.ratio * run.interpreted
    prior = np.array([*[1.0] * len(models), 0.5, 1.0])
    bounds = [*[LEAST] * len(models), 0.0, 0.0], [*[MOST] * len(models), 1.0, 1.0]
    design = np.concatenate([rows, PRIOR * np.eye(len(prior))])
    wanted = np.concatenate([np.ones(len(runs)), PRIOR * prior])
    coefficients = [float(number) for number in lsq_linear(design, wanted, bounds).x]
    kernels = dict(zip(models, coefficients, strict=False))
    return CompiledForm(kernels, coefficients[-2] * layer, coefficients[-1], error=0.0)


class CompiledDevice:
    """A measured device whose rounds are compiled; see `Device`.

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
        model, ran = (shape.digest, shape.dtype), last - first - len(skips) / 2.0
        compiled = self.form.pass_seconds(time.median, ran, model)
        return self._within(time, compiled, self.form.factor(model))

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
        return self._share(self.base.op_seconds(op_name, batch, width, moved))

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes over a link; see `Device`."""
        return self.base.read_seconds(link, moved)

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; see `Device`."""
        return self._share(self.base.round_seconds(batch))

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on; see `Device`."""
        return f"{self.base.basis(shapes)}, and rounds by {self.backend} told from some that ran"

    def _share(self, time: Seconds) -> Seconds:
        return self._within(time, self.form.others * time.median, self.form.others)

    def _within(self, time: Seconds, compiled: Quantity, factor: float) -> Seconds:
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
    return CompiledDevice(device, backend, fit_compiled(runs)) if runs else device
