"""The analytic form of a forward pass, fitted to measured rows of one model.

t = sum over ops of t0 + ((F / P)^p + (B / W)^p)^(1/p): the form of `roofline`, with t0 per kernel,
the achieved peak P and bandwidth W, and the sharpness p found by least squares on log times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.matrix_time import smooth_maximum
from specplan.cost_models.devices.measured.rows import ForwardRow, PrefillRow
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips

Floats = NDArray[np.float64]
LEAST_ROWS = 6
_LARGEST_SHARPNESS = 20.0
_OUTLIER = 0.05
"""Log residuals beyond this count linearly, not squared: cliffs do not bend the trend."""


@dataclass(frozen=True, slots=True)
class FittedForm:
    """Constants of the form for one model, with how well it fits.

    Attributes:
        model: digest of the model.
        dtype: number format it ran in.
        seconds_per_launch: t0.
        bytes_per_second: achieved bandwidth W.
        flops_per_second: achieved peak P.
        sharpness: p of the smooth maximum, from 1 on.
        mean_error: mean of |fit / measured - 1| over the rows.
        error: 90 % of the rows lie within this relative distance.
        rows: rows fitted.
    """

    model: str
    dtype: str
    seconds_per_launch: float
    bytes_per_second: float
    flops_per_second: float
    sharpness: float
    mean_error: float
    error: float
    rows: int

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        logit_rows: int | None = None,
        layers: tuple[int, int] | None = None,
        skips: Skips = NO_SKIPS,
    ) -> Floats:
        """A pass of some layers, default all, some blocks left out; logits at every query token.

        Arrays give arrays.
        """
        return self._seconds(_work(shape, batch, tokens, context, logit_rows, layers, skips))

    def prefill_seconds(self, shape: ModelShape, batch: Quantity, tokens: Quantity) -> Floats:
        """A prompt: all but its last token into an empty cache, one row of logits."""
        return self._seconds(_work(shape, batch, np.maximum(np.asarray(tokens) - 1.0, 1.0), 0, 1))

    def _seconds(self, work: _Work) -> Floats:
        return work.seconds(
            self.seconds_per_launch, self.bytes_per_second, self.flops_per_second, self.sharpness
        )


@dataclass(frozen=True)
class _Work:
    """Ops of several passes: [op, pass] each, executions and launches included."""

    count: Floats
    launches: Floats
    flops: Floats
    bytes: Floats

    def seconds(self, launch: float, bandwidth: float, peak: float, sharpness: float) -> Floats:
        busy = smooth_maximum(self.flops / peak, self.bytes / bandwidth, sharpness)
        total: Floats = (self.count * (launch * self.launches + busy)).sum(axis=0)
        return total


def _work(
    shape: ModelShape,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    rows: int | None,
    layers: tuple[int, int] | None = None,
    skips: Skips = NO_SKIPS,
) -> _Work:
    """Resources of passes, each op once per execution."""
    b, n, s = (np.asarray(x, dtype=np.float64) for x in (batch, tokens, context))
    b, n, s = np.broadcast_arrays(b, n, s)
    ops = forward_ops(shape, b, n, s, rows, layers, skips=skips)

    def table(values: Sequence[Quantity]) -> Floats:
        return np.stack([np.broadcast_to(np.asarray(x, dtype=np.float64), b.shape) for x in values])

    return _Work(
        table([op.count for op in ops]),
        table([op.cost.launches for op in ops]),
        table([op.cost.flops for op in ops]),
        table([op.cost.bytes for op in ops]),
    )


def fit_form(
    shape: ModelShape, forwards: Sequence[ForwardRow], prefills: Sequence[PrefillRow] = ()
) -> FittedForm | None:
    """Fit the form to rows of one model; None when they are too few or all alike.

    Args:
        shape: the model.
        forwards: its rows over all layers.
        prefills: its prompts.
    """
    whole = [row for row in forwards if row.seconds > 0.0 and row.whole]
    if len(whole) < LEAST_ROWS or len({row.batch * row.tokens for row in whole}) < 3:
        return None
    work = [_work(shape, *_columns(whole), None)]
    prompts = [row for row in prefills if row.seconds > 0.0 and row.tokens > 1]
    if prompts:
        batch = np.array([row.batch for row in prompts])
        work.append(_work(shape, batch, np.array([row.tokens - 1 for row in prompts]), 0, 1))
    measured = np.log([row.seconds for row in (*whole, *prompts)])
    constants = _least_squares(work, measured)
    ratio = np.exp(_logs(work, constants) - measured)
    launch, bandwidth, peak, sharpness = (float(x) for x in np.exp(constants))
    return FittedForm(
        model=whole[0].model,
        dtype=whole[0].dtype,
        seconds_per_launch=launch,
        bytes_per_second=bandwidth,
        flops_per_second=peak,
        sharpness=sharpness,
        mean_error=float(np.abs(ratio - 1.0).mean()),
        error=float(np.quantile(np.abs(ratio - 1.0), 0.9)),
        rows=len(measured),
    )


def _columns(rows: Sequence[ForwardRow]) -> tuple[Any, Any, Any]:
    return (
        np.array([row.batch for row in rows]),
        np.array([row.tokens for row in rows]),
        np.array([row.context for row in rows]),
    )


def _logs(work: Sequence[_Work], constants: Floats) -> Floats:
    launch, bandwidth, peak, sharpness = np.exp(constants)
    seconds = [part.seconds(launch, bandwidth, peak, sharpness) for part in work]
    logs: Floats = np.log(np.concatenate(seconds))
    return logs


def _least_squares(work: Sequence[_Work], measured: Floats) -> Floats:
    """Logs of (t0, W, P, p): the best of starts on either side of the knee."""
    from scipy.optimize import least_squares

    seconds = np.exp(measured)
    launches = np.concatenate([(part.count * part.launches).sum(axis=0) for part in work])
    moved = np.concatenate([(part.count * part.bytes).sum(axis=0) for part in work])
    flops = np.concatenate([(part.count * part.flops).sum(axis=0) for part in work])
    start = np.log(
        [0.3 * (seconds / launches).min(), (moved / seconds).max(), (flops / seconds).max(), 2.0]
    )
    wide = np.log(1e4)
    low = np.array([*(start[:3] - wide), 0.0])
    high = np.array([*(start[:3] + wide), np.log(_LARGEST_SHARPNESS)])
    residuals: Callable[[Floats], Floats] = lambda x: _logs(work, x) - measured  # noqa: E731
    solutions = [
        least_squares(
            residuals,
            np.clip(start + np.array(shift), low + 1e-9, high - 1e-9),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_OUTLIER,
        )
        for shift in ((0.0, 0.0, 0.0, 0.0), (-3.0, 0.7, 0.7, 1.0), (0.7, 0.7, 0.0, -0.6))
    ]
    best: Floats = min(solutions, key=lambda result: float(result.cost)).x
    return best
