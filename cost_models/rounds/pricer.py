"""What forwards and ops take at one batch and context, or on a grid of them; remembers both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specplan.cost_models.cost import Cost, Quantity, minimum
from specplan.cost_models.devices.device import Device, UnpricedError
from specplan.cost_models.intervals import NO_TIME, Seconds
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import ForwardDemand, OpDemand
from specplan.cost_models.rounds.refreshing import refresh_bytes, refresh_width

GLUE_OPS = frozenset({"root", "pick", "place", "compute", "uniform", "emit", "commit", "graft"})
"""Bookkeeping that a device may leave to its round's glue; every other op needs a price."""


@dataclass
class RoundPricer:
    """Prices the demands of rounds on a device.

    Plans of one search ask for the same passes again and again: each is priced once.

    Attributes:
        device: what the ops run on.
        shapes: by the model's name in the plans.
        batch: requests, a number or an array.
        context: tokens of text per request, a number or an array that broadcasts with `batch`.
    """

    device: Device
    shapes: Mapping[str, ModelShape]
    batch: Quantity
    context: Quantity
    _passes: dict[tuple[Any, ...], Seconds] = field(default_factory=dict)
    _ops: dict[tuple[Any, ...], Seconds] = field(default_factory=dict)

    def shape(self, model: str) -> ModelShape:
        """The shape of a model.

        Raises:
            UnpricedError: it is not known.
        """
        shape = self.shapes.get(model)
        if shape is None:
            raise UnpricedError(f"the shape of model {model!r} is not known")
        return shape

    def forward(self, demand: ForwardDemand, lag: Quantity) -> Seconds:
        """A forward; `lag` is the probability that what may be pending is.

        Raises:
            UnpricedError: the device cannot say.
        """
        seconds = self._forward(demand, demand.tokens)
        if demand.pending:
            late = self._forward(demand, demand.width)
            seconds = seconds * (1.0 - lag) + late * lag
        return seconds

    def op(self, demand: OpDemand) -> Seconds:
        """An op that is no forward.

        Raises:
            UnpricedError: the device cannot say.
        """
        view = demand.view
        own = () if view is None else (view.model, view.policy, view.budget)
        key = demand.name, demand.width, *own
        if key not in self._ops:
            width: Quantity = demand.width
            moved: Quantity = 0.0
            if view is not None:
                width = refresh_width(view, self.context)
                shape = self.shape(view.model)
                moved = self.batch * refresh_bytes(view, shape, self.context)
            self._ops[key] = self._op_seconds(demand.name, width, moved)
        return self._ops[key]

    def glue(self) -> Seconds:
        """Seconds of a round outside of its ops.

        Raises:
            UnpricedError: the device cannot say.
        """
        return self.device.round_seconds(self.batch)

    def cost(self, demand: ForwardDemand, lag: Quantity) -> Cost:
        """Resources of a forward; not remembered."""
        shape, context = self._shape(demand), self._context(demand)
        tokens = demand.tokens + lag * demand.pending
        layers, skips = demand.stack
        return forward_cost(shape, self.batch, tokens, context, demand.rows, layers, skips=skips)

    def _forward(self, demand: ForwardDemand, tokens: int) -> Seconds:
        before = demand.drafted_before, demand.budget, demand.whole_heads, demand.own_states
        key = (demand.model, tokens, *before, demand.replays, demand.rows, demand.stack)
        if key not in self._passes:
            self._passes[key] = self.device.forward_seconds(
                self._shape(demand),
                self.batch,
                tokens,
                self._context(demand),
                demand.rows,
                *demand.stack,
            )
        return self._passes[key]

    def _shape(self, demand: ForwardDemand) -> ModelShape:
        shape = self.shape(demand.model)
        borrowed = shape.feature_width is not None and demand.own_states
        if demand.replays and shape.state_elements:
            shape = replace(shape, replays=True)
        return shape.on_own_states if borrowed else shape

    def _context(self, demand: ForwardDemand) -> Quantity:
        """Cached tokens that a pass reads, in the mean of its heads where these differ."""
        cached = self.context if demand.budget is None else minimum(self.context, demand.budget)
        if demand.whole_heads:
            share = demand.whole_heads / max(sum(self.shape(demand.model).kv_heads), 1)
            cached = share * self.context + (1.0 - share) * cached
        return cached + demand.drafted_before

    def _op_seconds(self, name: str, width: Quantity, moved: Quantity) -> Seconds:
        try:
            return self.device.op_seconds(name, self.batch, width, moved)
        except UnpricedError:
            if name.partition(":")[0] in GLUE_OPS and self.device.kind == "measured":
                return NO_TIME
            raise
