"""Steps of measured forwards that the fitted form lacks: gaps worth another anchor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specplan.cost_models.devices.measured.interpolation import is_cliff
from specplan.cost_models.devices.measured.rows import ForwardRow
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.models.model_shape import ModelShape


@dataclass(frozen=True)
class Cliff:
    """A step between two neighbouring anchors in query tokens.

    Attributes:
        role: of the model.
        batch: sequences.
        context: tokens in the cache.
        left: query tokens before the step.
        right: query tokens after it.
        height: |log| of the step over the trend's.
    """

    role: str
    batch: int
    context: int
    left: int
    right: int
    height: float

    @property
    def middle(self) -> int:
        """Query tokens half way."""
        return (self.left + self.right) // 2


def find_cliffs(table: MeasuredTable, shapes: Mapping[str, ModelShape]) -> list[Cliff]:
    """Cliffs with room for an anchor in between, the highest first.

    Args:
        table: with rows and fits; a model without a fit has no cliffs.
        shapes: by role.
    """
    roles = {(shape.digest, shape.dtype): role for role, shape in reversed(tuple(shapes.items()))}
    curves: dict[tuple[str, int, int], list[ForwardRow]] = defaultdict(list)
    for row in table.rows.values():
        if isinstance(row, ForwardRow) and row.whole:
            role = roles.get((row.model, row.dtype))
            if role is not None:
                curves[role, row.batch, row.context].append(row)
    cliffs: list[Cliff] = []
    for (role, _, _), rows in curves.items():
        cliffs += _along(table, shapes[role], role, sorted(rows, key=lambda row: row.tokens))
    return sorted(cliffs, key=lambda cliff: -cliff.height)


def _along(
    table: MeasuredTable, shape: ModelShape, role: str, rows: list[ForwardRow]
) -> list[Cliff]:
    fit = table.fits.get((shape.digest, shape.dtype))
    if fit is None or min(row.seconds for row in rows) <= 0.0:
        return []
    batch, context = rows[0].batch, rows[0].context
    tokens = np.array([row.tokens for row in rows])
    seconds = np.array([row.seconds for row in rows])
    scatter = table.scatter
    own = np.array([row.own(scatter) for row in rows]) / seconds
    trend = fit.forward_seconds(shape, batch, tokens, context)
    noise = np.hypot(own[:-1], own[1:])
    steps = is_cliff(seconds[:-1], seconds[1:], trend[:-1], trend[1:], noise)
    heights = np.abs(np.diff(np.log(seconds / trend)))
    return [
        Cliff(role, batch, context, int(tokens[i]), int(tokens[i + 1]), float(heights[i]))
        for i in np.flatnonzero(steps)
        if tokens[i + 1] - tokens[i] > 1
    ]
