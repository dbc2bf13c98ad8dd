"""Acceptance by depth and rank, as a table that tree search works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.formulas.closed_forms import Hazard
from specplan.ir.errors import UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AcceptanceTable:
    """P(the child of a rank is the accepted one | its parent was), by depth and rank.

    Attributes:
        hazards: [depth, rank]; the first row is depth 1, the last one serves all deeper levels;
            ranks beyond the table are never accepted.
    """

    hazards: Array

    def __post_init__(self) -> None:
        rows = np.array(self.hazards, dtype=np.float64)
        if rows.ndim != 2 or not rows.size or not ((rows >= 0.0) & (rows <= 1.0)).all():
            raise UsageError(
                "an acceptance table has at least one row and one rank, all within [0, 1]",
                remedy="Give one list of probabilities per depth, rank 0 first.",
            )
        rows.flags.writeable = False
        object.__setattr__(self, "hazards", rows)

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[float]]) -> AcceptanceTable:
        """From rows of any lengths, one per depth; shorter ones end with zeros."""
        width = max((len(row) for row in rows), default=0)
        return cls(np.array([[*row, *(0.0,) * (width - len(row))] for row in rows], dtype=float))

    @classmethod
    def of_hazard(cls, hazard: Hazard, depths: int, ranks: int) -> AcceptanceTable:
        """A law tabulated at depths 1 to `depths` and ranks 0 to `ranks` - 1.

        Equal rows at the end are kept once: the last row serves all deeper levels, and a table
        of fewer rows is searched faster.
        """
        rows = [[hazard(d, r) for r in range(ranks)] for d in range(1, depths + 1)]
        while len(rows) > 1 and rows[-1] == rows[-2]:
            rows.pop()
        return cls.of_rows(rows)

    def __call__(self, depth: int, rank: int) -> float:
        """The hazard at a depth >= 1 and a rank >= 0; a table is a `Hazard`."""
        if rank >= self.hazards.shape[1]:
            return 0.0
        return float(self.hazards[min(depth, len(self.hazards)) - 1, rank])

    def row(self, depth: int) -> Array:
        """The hazards of all ranks at a depth >= 1."""
        row: Array = self.hazards[min(depth, len(self.hazards)) - 1]
        return row

    @cached_property
    def is_ordered(self) -> bool:
        """Whether no hazard is larger than that of its elder sibling."""
        return bool((self.hazards[:, 1:] <= self.hazards[:, :-1]).all())
