"""Types of values in each trip through the loops of a round."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.ir.op import Op, Step
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import Type
from specplan.ir.values import Value


class TypesByTrip:
    """Types of a round, as they are in each trip through its loops."""

    def __init__(self, types: RoundTypes) -> None:
        self.steps: dict[tuple[int, int], Step] = {
            (id(one.op), one.trip): one for one in types.steps
        }
        self.regions = types.regions

    def results(self, op: Op, trip: int) -> Sequence[Type]:
        """Types of an op's results."""
        at = id(op), trip
        return self.steps[at].gives if at in self.steps else self.regions[at]

    def operand(self, op: Op, name: Value | None, trip: int) -> Type | None:
        """The type of what an op reads."""
        step = self.steps.get((id(op), trip))
        return None if step is None or name is None else step.reads.get(name)
