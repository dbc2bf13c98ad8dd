"""A device as it was measured: a table of times, interpolated between its anchors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.devices.measured.fitted import FittedForm
from specplan.cost_models.devices.measured.interpolation import (
    Anchor,
    Axis,
    Coordinates,
    Trend,
    nested_axes,
)
from specplan.cost_models.devices.measured.rows import (
    ForwardRow,
    OpRow,
    PrefillRow,
    ReadRow,
    RoundRow,
    Row,
)
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.memory.workspace import PREFILL_CHUNK
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.placement import with_reads
from specplan.ir.blocks import NO_SKIPS, Skips

_REMEDY = "Run `specplan profile device` for this problem."
Span = tuple[int, int]
Nested = dict[Any, Any]


class MeasuredDevice:
    """Prices from a `MeasuredTable`.

    Linear in tokens between anchors of the same batch and context, then linear in context, then
    in batch; cliffs in tokens and batch are steps. See `Axis.at`. Batch, tokens and context may be
    numbers, or arrays that broadcast: then each field of the answer is an array. Single points
    are remembered.

    Attributes:
        table: what was measured.
        lane_overlap: as measured where lanes run at once, else 0; see `Device`.
        shared_error: relative half width of the 90 % interval of the machine's speed at another
            moment, its drift, which is part of every interval.
    """

    kind: Literal["measured"] = "measured"
    skips_dead = False

    def __init__(self, table: MeasuredTable) -> None:
        self.table = table
        self.provenance = table.provenance
        self.name = table.name
        self.memory_bytes = table.provenance.memory_bytes
        self.lane_overlap = table.lane_overlap or 0.0
        self.shared_error, self._scatter = table.drift, table.scatter
        self._points: dict[Any, Nested] = {}
        self._axes: dict[Any, Axis] = {}
        self._known: dict[Any, Seconds] = {}
        self._reads: dict[tuple[str, int], Seconds] = {}
        self._emptied: dict[tuple[str, str], Skips] = {}
        for row in table.rows.values():
            self._place(row)

    def _place(self, row: Row) -> None:
        own = row.own(self._scatter) / row.seconds if row.seconds > 0.0 else 0.0
        anchor = Anchor(row.time(self.shared_error, self._scatter), own)
        match row:
            case ForwardRow():
                skips = Skips.read(row.skip)
                about: Any = ("forward", row.model, row.dtype, row.layers, skips, row.logits)
                outer = self._points.setdefault(about, {}).setdefault(row.batch, {})
                outer.setdefault(row.context, {})[row.tokens] = anchor
                known = self._emptied.get((row.model, row.dtype), NO_SKIPS)
                if skips.attentions and skips.mlps and len(skips) > len(known):
                    self._emptied[row.model, row.dtype] = skips
            case PrefillRow():
                about = ("prefill", row.model, row.dtype)
                self._points.setdefault(about, {}).setdefault(row.batch, {})[row.tokens] = anchor
            case OpRow():
                outer = self._points.setdefault(("op", row.op), {})
                outer.setdefault(row.batch, {})[row.width] = anchor
            case RoundRow():
                self._points.setdefault(("round",), {})[row.batch] = anchor
            case ReadRow():
                self._reads[row.link, row.moved] = row.time(self.shared_error, self._scatter)

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        logit_rows: Quantity | None = None,
        layers: Span | None = None,
        skips: Skips = NO_SKIPS,
    ) -> Seconds:
        """One forward pass; see `Device`.

        The rows hold passes with logits at every query token, or without any: `logit_rows` only
        says which of the two, and where the latter were not measured the former stand for them.
        A pass without a set of blocks that was not measured itself lies between four measured ones:
        with all blocks, without many attentions, without many MLPs, and without both; blocks of one
        kind count alike, and no more of them than were left out there.
        """
        if shape.placement is not None:
            place = (batch, tokens, context, logit_rows, layers, skips)
            time = self.forward_seconds(shape.in_memory, *place)
            return with_reads(self, shape, time, tokens, logit_rows, layers)
        own = ("forward", shape.digest, shape.dtype, layers, skips, True)
        if not skips or own in self._points:
            return self._pass(shape, batch, tokens, context, logit_rows, layers, skips)
        time = Seconds.exact(0.0)
        for corner, weight in self._corners(shape, layers, skips):
            part = self._pass(shape, batch, tokens, context, logit_rows, layers, corner)
            time += part * weight
        return time

    def _corners(
        self, shape: ModelShape, layers: Span | None, skips: Skips
    ) -> Iterator[tuple[Skips, float]]:
        """Measured sets of blocks around a set, each with its weight; the weights sum to 1."""
        most = self._emptied.get((shape.digest, shape.dtype)) if layers is None else None
        if most is None:
            raise self._unmeasured("forward passes without some blocks", shape, layers)
        kinds = ((most.attentions, skips.attentions), (most.mlps, skips.mlps))
        attention, mlp = (min(1.0, len(some) / len(every)) for every, some in kinds)
        for attentions, a in (((), 1.0 - attention), (most.attentions, attention)):
            for mlps, b in (((), 1.0 - mlp), (most.mlps, mlp)):
                if a * b > 0.0:
                    yield Skips(attentions, mlps), a * b

    def _pass(
        self,
        shape: ModelShape,
        batch: Quantity,
        tokens: Quantity,
        context: Quantity,
        logit_rows: Quantity | None,
        layers: Span | None,
        skips: Skips,
    ) -> Seconds:
        """A pass of the kind of some measured rows."""
        about = ("forward", shape.digest, shape.dtype, layers, skips, True)
        silent = (*about[:-1], False)
        rows: int | None = None
        if isinstance(logit_rows, int) and logit_rows == 0 and silent in self._points:
            about, rows = silent, 0
        if about not in self._points:
            raise self._unmeasured("forward passes", shape, layers)
        fit = self.table.fits.get((shape.digest, shape.dtype))

        def trend(points: Coordinates) -> Any:
            assert fit is not None
            return fit.forward_seconds(shape, points[0], points[2], points[1], rows, layers, skips)

        return self._at(about, (batch, context, tokens), fit, trend, (True, False, True))

    def prefill_seconds(
        self, shape: ModelShape, batch: Quantity, tokens: Quantity, cached: Quantity = 0
    ) -> Seconds:
        """A prompt; see `Device`.

        Prefills were measured from an empty cache. Of one that is partly `cached`, the time is what
        the whole prompt takes beyond a prompt of the cached tokens, and at least that of a pass
        over one token, which reads all weights too.
        """
        if shape.placement is not None:
            time = self.prefill_seconds(shape.in_memory, batch, tokens, cached)
            passes = np.ceil((tokens - cached) / PREFILL_CHUNK)
            each = time * (1.0 / passes)
            read: Seconds = with_reads(self, shape, each, PREFILL_CHUNK, 1, None) * passes
            return read
        whole = self._prefill(shape, batch, tokens)
        if not np.any(cached):
            return whole
        spared = self._prefill(shape, batch, cached)
        least = self.forward_seconds(shape, batch, 1, cached, logit_rows=1)
        return Seconds(
            maximum(whole.median - spared.median, least.median),
            maximum(whole.low - spared.low, least.low),
            maximum(whole.high - spared.high, least.high),
            whole.extrapolated | spared.extrapolated | least.extrapolated,
        )

    def _prefill(self, shape: ModelShape, batch: Quantity, tokens: Quantity) -> Seconds:
        about = ("prefill", shape.digest, shape.dtype)
        if about not in self._points:
            raise self._unmeasured("prefills", shape, None)
        fit = self.table.fits.get((shape.digest, shape.dtype))

        def trend(points: Coordinates) -> Any:
            assert fit is not None
            return fit.prefill_seconds(shape, points[0], points[1])

        return self._at(about, (batch, tokens), fit, trend, (True, True))

    def op_seconds(
        self, op_name: str, batch: Quantity, width: Quantity, moved: Quantity = 0.0
    ) -> Seconds:
        """One op that is no forward; see `Device`."""
        for name in (op_name, op_name.split(":")[0]):
            if ("op", name) in self._points:
                return self._at(("op", name), (batch, width))
        raise UnpricedError(
            f"op {op_name!r} was not measured", where=f"device {self.name}", remedy=_REMEDY
        )

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes over a link, in proportion to the measured layer of the next size; see `Device`."""
        sizes = [size for name, size in self._reads if name == link]
        if not sizes:
            raise UnpricedError(
                f"reading from {link} was not measured", where=f"device {self.name}", remedy=_REMEDY
            )
        nearest = min(sizes, key=lambda size: abs(size - moved))
        return self._reads[link, nearest] * (moved / nearest)

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times rest on; see `Device`."""
        return "was measured"

    def round_seconds(self, batch: Quantity) -> Seconds:
        """A round's glue; see `Device`."""
        if ("round",) not in self._points:
            raise UnpricedError(
                "the time of a round outside of its ops was not measured",
                where=f"device {self.name}",
                remedy=_REMEDY,
            )
        return self._at(("round",), (batch,))

    def _at(
        self,
        about: Any,
        point: tuple[Quantity, ...],
        fit: FittedForm | None = None,
        trend: Callable[[Coordinates], Any] | None = None,
        stepping: tuple[bool, ...] = (),
    ) -> Seconds:
        single = not any(isinstance(x, np.ndarray) for x in point)
        if single:
            known = self._known.get((about, point))
            if known is not None:
                return known
        along: Trend | None = None if fit is None else trend
        if about not in self._axes:
            self._axes[about] = nested_axes(self._points[about], along, stepping)
        spread = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in point))
        error = 0.0 if fit is None else fit.error
        times = self._axes[about].at(tuple(x.ravel() for x in spread), along, error)
        columns = [np.asarray(x) for x in (times.median, times.low, times.high)]
        if not single:
            a, b, c = (column.reshape(spread[0].shape) for column in columns)
            return Seconds(a, b, c, times.extrapolated)  # type: ignore[arg-type]
        median, low, high = (float(column[0]) for column in columns)
        answer = Seconds(median, low, high, times.extrapolated)
        self._known[about, point] = answer
        return answer

    def _unmeasured(self, what: str, shape: ModelShape, layers: Span | None) -> UnpricedError:
        part = f", layers {layers[0]}:{layers[1]}" if layers else ""
        return UnpricedError(
            f"no {what} of model {shape.name!r} ({shape.dtype}{part}, digest "
            f"{shape.digest[:12]}) were measured",
            where=f"device {self.name}",
            remedy=_REMEDY,
        )
