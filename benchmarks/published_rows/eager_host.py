"""Rounds as PyTorch runs them eagerly: a host that launches every kernel, a device that follows.

A pass takes the longer of two times: its kernels launched one by one, or its work on the device.
Between passes the host has waited for a result, so what it launches there is not hidden.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.stack import load_stack
from specplan.cost_models.models.model_shape import ModelShape

PRICED_KERNELS = 5
"""Matrix products and attention of a layer, of those that `forward_ops` lists."""

EAGER = load_stack("transformers-eager")
"""Whose small kernels move what eager PyTorch makes them move."""

LAUNCHES_PER_READ = 4
"""A read of a result by the host waits until the device is idle: as long as about 4 launches."""


@dataclass(frozen=True)
class Pass:
    """One forward pass of a round.

    Attributes:
        tokens: query tokens; several where they vary from round to round, averaged over.
        layer_kernels: kernels launched per layer.
        other_kernels: launched beside the layers: embedding, mask, last norm, head.
        layers: of the target that it runs; None for all of them.
        heads: vocabulary heads over its tokens.
    """

    tokens: tuple[int, ...]
    layer_kernels: float
    other_kernels: float = 25.0
    layers: int | None = None
    heads: int = 1


@dataclass(frozen=True)
class EagerHost:
    """A device, and the host that launches its kernels.

    Attributes:
        device: prices matrix products and attention.
        dispatch_seconds: to launch one kernel, Python and PyTorch included.
        tile_rows: rows of a matrix product are rounded up to a multiple of this beyond 16, the
            smallest tile; 1 where the device's own times know of tiles.
    """

    device: AnalyticDevice
    dispatch_seconds: float
    tile_rows: int = 1

    @classmethod
    def of(cls, name: str, dispatch_seconds: float, tile_rows: int = 1) -> EagerHost:
        """A shipped device by name."""
        device = load_device(name)
        assert isinstance(device, AnalyticDevice)
        return cls(device, dispatch_seconds, tile_rows)

    def pass_seconds(self, shape: ModelShape, work: Pass, context: int) -> float:
        """A forward pass of `shape`, seconds."""
        return fmean(self._pass(shape, work, tokens, context) for tokens in work.tokens)

    def host_seconds(self, launches: float, reads: float = 0.0) -> float:
        """Launches outside of passes, and reads of results by the host, seconds."""
        return (launches + LAUNCHES_PER_READ * reads) * self.dispatch_seconds

    def _pass(self, shape: ModelShape, work: Pass, tokens: int, context: int) -> float:
        layers = shape.num_layers if work.layers is None else work.layers
        kernels = layers * work.layer_kernels + work.other_kernels
        rows = tokens if tokens <= 16 else math.ceil(tokens / self.tile_rows) * self.tile_rows
        small = max(0.0, work.layer_kernels - PRICED_KERNELS)
        stack = replace(EAGER, kernels_per_layer=small, dispatch_seconds=0.0)
        price = replace(self.device, stack=stack).forward_seconds
        busy = price(shape, 1, rows, context, 0, (0, layers)).median
        busy += work.heads * price(shape, 1, rows, context, None, (0, 0)).median
        return max(busy, kernels * self.dispatch_seconds)
