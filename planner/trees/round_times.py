"""Seconds of a drafting round, by what is drafted and verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specplan.ir.errors import UsageError
from specplan.planner.trees.shape import StaticTree
from specplan.planner.trees.table import Array


@dataclass(frozen=True, eq=False)
class RoundTimes:
    """Seconds of the parts of a round, at one batch size and context.

    Attributes:
        verify: by drafted nodes, from 0: the target's forward over them and the last token. The
            entry 0 is a step of plain decoding, which is charged nothing else.
        draft: by nodes that get children, from 1: one forward of the draft model over them. The
            last entry serves wider levels too.
        overhead: what a round that drafts costs besides.
    """

    verify: Array
    draft: Array
    overhead: float = 0.0

    def __post_init__(self) -> None:
        for name in ("verify", "draft"):
            seconds = np.array(getattr(self, name), dtype=np.float64)
            if seconds.ndim != 1 or not len(seconds) or not (seconds >= 0.0).all():
                raise UsageError(f"seconds to {name} must be one row of numbers, none below 0")
            object.__setattr__(self, name, seconds)
        if not self.verify.all() or not self.overhead >= 0.0:
            raise UsageError("seconds to verify must be above 0, and the overhead not below 0")

    @classmethod
    def of(
        cls,
        verify: Callable[[Array], ArrayLike],
        draft: Callable[[Array], ArrayLike],
        nodes: int,
        width: int,
        overhead: float = 0.0,
    ) -> RoundTimes:
        """From functions of arrays of drafted nodes (0 to `nodes`) and of widths (1 to `width`).

        A batch size and a context are bound by the functions; `AnalyticDevice` takes arrays.
        """
        sizes, widths = np.arange(nodes + 1.0), np.arange(1.0, width + 1)
        return cls(
            np.broadcast_to(np.asarray(verify(sizes), dtype=float), sizes.shape),
            np.broadcast_to(np.asarray(draft(widths), dtype=float), widths.shape),
            overhead,
        )

    @property
    def plain(self) -> float:
        """Seconds per token without speculation."""
        return float(self.verify[0])

    def draft_of(self, widths: np.ndarray) -> Array:
        """Seconds to draft levels from so many nodes each; nothing where there are none."""
        seconds = np.concatenate(([0.0], self.draft))
        return np.asarray(seconds[np.minimum(widths, len(self.draft))], dtype=np.float64)

    def round_seconds(self, tree: StaticTree) -> float:
        """Seconds of a round with this tree; a step of plain decoding without nodes.

        Raises:
            UsageError: when no time is known to verify so many nodes.
        """
        if not len(tree):
            return self.plain
        drafted = self.draft_of(np.array(level_widths(tree))).sum()
        return float(self.verify_seconds(len(tree)) + drafted + self.overhead)

    def verify_seconds(self, nodes: int) -> float:
        """Seconds to verify so many drafted nodes.

        Raises:
            UsageError: when no time is known to verify so many nodes.
        """
        if nodes >= len(self.verify):
            raise UsageError(f"no time is known to verify {nodes} nodes")
        return float(self.verify[nodes])


def level_widths(tree: StaticTree) -> tuple[int, ...]:
    """Nodes that get children, per depth from 0: what each draft forward runs over."""
    widths = [0] * tree.depth
    for parent in set(tree.parents):
        widths[tree.depths[parent] if parent >= 0 else 0] += 1
    return tuple(widths)
