"""A device as it was measured: a table of times, interpolated between its anchors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from specplan.cost_models.device import UnpricedError
from specplan.cost_models.interpolation import Axis
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.measured_table import (
    ForwardRow,
    MeasuredTable,
    OpRow,
    PrefillRow,
    RoundRow,
)
from specplan.cost_models.model_shape import ModelShape

_REMEDY = "Run `specplan profile device` for this problem."
Span = tuple[int, int]
Nested = dict[Any, Any]


class MeasuredDevice:
    """Prices from a `MeasuredTable`.

    Linear in tokens between anchors of the same batch and context, then linear in context,
    then in batch; nothing is smoothed. See `Axis.at` for what happens outside.
    """

    kind: Literal["measured"] = "measured"

    def __init__(self, table: MeasuredTable) -> None:
        self.table = table
        self.provenance = table.provenance
        self.name = table.name
        self.memory_bytes = table.provenance.memory_bytes
        forward: Nested = {}
        prefill: Nested = {}
        ops: Nested = {}
        rounds: Nested = {}
        for row in table.rows.values():
            match row:
                case ForwardRow():
                    batches = forward.setdefault((row.model, row.dtype, row.layers), {})
                    contexts = batches.setdefault(row.batch, {})
                    contexts.setdefault(row.context, {})[row.tokens] = row.time
                case PrefillRow():
                    batches = prefill.setdefault((row.model, row.dtype), {})
                    batches.setdefault(row.batch, {})[row.tokens] = row.time
                case OpRow():
                    ops.setdefault(row.op, {}).setdefault(row.batch, {})[row.width] = row.time
                case RoundRow():
                    rounds[row.batch] = row.time
        self._forward = _axes(forward)
        self._prefill = _axes(prefill)
        self._ops = _axes(ops)
        self._rounds = Axis.nested(rounds) if rounds else None

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: int,
        tokens: int,
        context: float,
        logit_rows: int | None = None,
        layers: Span | None = None,
    ) -> Seconds:
        """One forward pass; see `Device`.

        `logit_rows` is not used: the rows hold passes with logits at every query token.
        """
        axis = self._forward.get((shape.digest, shape.dtype, layers))
        if axis is None:
            raise self._unmeasured("forward passes", shape, layers)
        return axis.at((batch, context, tokens))

    def prefill_seconds(self, shape: ModelShape, batch: int, tokens: int) -> Seconds:
        """A prompt; see `Device`."""
        axis = self._prefill.get((shape.digest, shape.dtype))
        if axis is None:
            raise self._unmeasured("prefills", shape, None)
        return axis.at((batch, tokens))

    def op_seconds(self, op_name: str, batch: int, width: int) -> Seconds:
        """One op that is no forward; see `Device`."""
        axis = self._ops.get(op_name) or self._ops.get(op_name.split(":")[0])
        if axis is None:
            raise UnpricedError(
                f"op {op_name!r} was not measured", where=f"device {self.name}", remedy=_REMEDY
            )
        return axis.at((batch, width))

    def round_seconds(self, batch: int) -> Seconds:
        """A round's glue; see `Device`."""
        if self._rounds is None:
            raise UnpricedError(
                "what a round takes beside its ops was not measured",
                where=f"device {self.name}",
                remedy=_REMEDY,
            )
        return self._rounds.at((batch,))

    def _unmeasured(self, what: str, shape: ModelShape, layers: Span | None) -> UnpricedError:
        part = f", layers {layers[0]}:{layers[1]}" if layers else ""
        return UnpricedError(
            f"no {what} of model {shape.name!r} ({shape.dtype}{part}, digest "
            f"{shape.digest[:12]}) were measured",
            where=f"device {self.name}",
            remedy=_REMEDY,
        )


def _axes(tables: Mapping[Any, Nested]) -> dict[Any, Axis]:
    return {key: Axis.nested(points) for key, points in tables.items()}
