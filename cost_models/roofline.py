"""Time from data-sheet figures: t0 + smooth maximum of compute and memory time, per op.

Form and fitted efficiencies: t = t0 + ((F / e_f P)^p + (B / e_b W)^p)^(1/p), fitted to the
public GEMM profiles of microsoft/vidur; p -> infinity is the roofline of Williams,
Waterman and Patterson (2009).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specplan.cost_models.cost import Cost
from specplan.cost_models.device import UnpricedError
from specplan.cost_models.forward import forward_ops
from specplan.cost_models.intervals import Seconds, total
from specplan.cost_models.model_shape import ModelShape
from specplan.ir.errors import UsageError


@dataclass(frozen=True)
class AnalyticDevice:
    """A device known from its data sheet.

    Attributes:
        name: how the user calls it.
        memory_bytes: capacity, bytes.
        memory_bandwidth: bytes per second.
        peak_flops: dense peak per dtype, operations per second.
        compute_efficiency: reachable part of the peak, e_f.
        memory_efficiency: reachable part of the bandwidth, e_b.
        seconds_per_launch: t0, per kernel.
        roofline_sharpness: p of the smooth maximum; infinity for the hard one.
        host_seconds: a round's glue.
        judge_seconds: sampling and verification of a drafted tree, per round.
        relative_error: half width of every interval, relative.
        sources: where each figure comes from, by attribute.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    seconds_per_launch: float = 0.0
    roofline_sharpness: float = math.inf
    host_seconds: float = 0.0
    judge_seconds: float = 0.0
    relative_error: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["analytic"] = "analytic"

    @classmethod
    def from_yaml(cls, text: str, where: str = "device file") -> AnalyticDevice:
        """Read a device file; each figure there is `{value: ..., source: ...}`.

        Raises:
            UsageError: not YAML, an unknown or missing key, a figure without a source.
        """
        import yaml

        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"not YAML ({error})", where=where) from error
        if not isinstance(data, dict) or data.get("schema_version") != 1:
            raise UsageError("not a device file with schema_version: 1", where=where)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for key, entry in data.items():
            if key in ("schema_version", "name", "description"):
                continue
            if key not in _FIGURES:
                raise UsageError(
                    f"unknown key {key!r}",
                    where=where,
                    remedy=f"Known keys: {', '.join(_FIGURES)}.",
                )
            values[key], sources[key] = _figure(entry, f"{where}: {key}")
        missing = [
            key for key in ("memory_bytes", "memory_bandwidth", "peak_flops") if key not in values
        ]
        if missing:
            raise UsageError(
                f"lacks {', '.join(missing)}",
                where=where,
                remedy="Add the figure as {value: ..., source: ...}.",
            )
        return cls(name=str(data.get("name", where)), sources=sources, **values)

    def op_cost_seconds(self, cost: Cost, dtype: str) -> float:
        """Seconds of one op by its resources.

        Raises:
            UnpricedError: the device has no peak for `dtype`.
        """
        peak = self.peak_flops.get(dtype)
        if peak is None:
            raise UnpricedError(
                f"no peak for {dtype}",
                where=f"device {self.name}",
                remedy=f"Run in one of {', '.join(sorted(self.peak_flops))}, or add "
                "peak_flops for it to the device file.",
            )
        compute = cost.flops / (self.compute_efficiency * peak)
        memory = cost.bytes / (self.memory_efficiency * self.memory_bandwidth)
        longer, shorter = max(compute, memory), min(compute, memory)
        if longer > 0.0 and math.isfinite(self.roofline_sharpness):
            p = self.roofline_sharpness
            longer = longer * (1.0 + (shorter / longer) ** p) ** (1.0 / p)
        return float(self.seconds_per_launch * cost.launches + longer)

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: int,
        tokens: int,
        context: float,
        logit_rows: int | None = None,
        layers: tuple[int, int] | None = None,
    ) -> Seconds:
        """One forward pass, the sum of its ops; see `Device`."""
        ops = forward_ops(shape, batch, tokens, context, logit_rows, layers)
        return total(
            Seconds.relative(op.count * self.op_cost_seconds(op.cost, op.math), self.relative_error)
            for op in ops
        )

    def prefill_seconds(self, shape: ModelShape, batch: int, tokens: int) -> Seconds:
        """A prompt; see `Device`."""
        return self.forward_seconds(shape, batch, tokens, 0, logit_rows=1)

    def op_seconds(self, op_name: str, batch: int, width: int) -> Seconds:
        """One op that is no forward; see `Device`.

        A data sheet says nothing of them: judging a drafted tree costs the device's
        `judge_seconds`, every other op one launch.
        """
        judged = op_name.split(":")[0] == "accept" and width > 1
        seconds = self.judge_seconds if judged else self.seconds_per_launch
        return Seconds(seconds, 0.0, 2.0 * seconds)

    def round_seconds(self, batch: int) -> Seconds:
        """A round's glue; see `Device`."""
        return Seconds(self.host_seconds, 0.0, 2.0 * self.host_seconds)


_FIGURES = (
    "memory_bytes",
    "memory_bandwidth",
    "peak_flops",
    "compute_efficiency",
    "memory_efficiency",
    "seconds_per_launch",
    "roofline_sharpness",
    "host_seconds",
    "judge_seconds",
    "relative_error",
)


def _figure(entry: Any, where: str) -> tuple[Any, str]:
    if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
        raise UsageError("not a {value: ..., source: ...}", where=where)
    value = entry["value"]
    numbers = value.values() if isinstance(value, dict) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
            raise UsageError(f"{number!r} is not a number >= 0", where=where)
    if isinstance(value, dict) != where.endswith("peak_flops"):
        raise UsageError("peak_flops maps dtypes to numbers, others are one number", where=where)
    return value, str(entry["source"])
