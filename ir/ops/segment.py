"""`segment`: ops that are scheduled together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Region, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import Type
from specplan.ir.world import Batch


@dataclass(frozen=True, kw_only=True)
class Segment(Op):
    """Ops scheduled together, in a lane beside others; has no meaning of its own.

    %c = segment lane=draft {
    %l = segment lane=verify {
    """

    keyword = "segment"
    gone = (("fuse", "a backend fuses what it can"), ("capture", "a backend records what it can"))
    lane: str | None = None
    body: Region = field(default_factory=Region)

    def infer(self, context: Context) -> tuple[Type, ...]:
        """What its region yields."""
        if self.body.until is not None:
            raise RuleError("arity", "until= ends trips of a repeat")
        return context.region(self.body, lane=self.lane).yields(self.body)

    def demand(self, step: Step, plan: Plan) -> Work:
        """Nothing by itself: the ops of its region are asked."""
        return Work(self.keyword, 0)

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """The region itself."""
        inner = {row: dict(scope) for row, scope in scopes.items()}
        batch.run(self.body.ops, inner)
        for row, scope in scopes.items():
            scope.update(zip(self.results, [inner[row][n] for n in self.body.yields], strict=True))


OP = Segment
