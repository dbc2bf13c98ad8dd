"""The memory of plans that take turns over the cells of a workload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.memory.plan_memory import MemoryPart, PlanMemory


def memory_by_cell(memories: Sequence[PlanMemory], which: NDArray[np.int64]) -> PlanMemory:
    """Cell by cell the memory of the plan that is chosen there, part by part.

    Args:
        memories: of several plans, in the same cells.
        which: index into `memories` of each cell, [cells].
    """
    names = dict.fromkeys(part.name for memory in memories for part in memory.parts)
    sizes = [{part.name: part.bytes for part in memory.parts} for memory in memories]
    columns = {name: [np.broadcast_to(one.get(name, 0.0), which.shape) for one in sizes]
               for name in names}  # fmt: skip
    return PlanMemory(tuple(MemoryPart(name, np.choose(which, columns[name])) for name in names))
