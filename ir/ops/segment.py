"""`segment`: schedule ops together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Region, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context, Place
from specplan.ir.types.value_types import Type
from specplan.ir.world import Batch


@dataclass(frozen=True, kw_only=True)
class Segment(Op):
    """Schedule ops together, in a lane beside others; the result is that of the ops.

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
            raise RuleError("arity", "until= ends a repeat, not a segment")
        return context.region(self.body, place=Place(lane=self.lane)).yields(self.body)

    def demand(self, step: Step, plan: Plan) -> Work:
        """Nothing itself; the ops of its region have demands of their own."""
        return Work(self.keyword, 0)

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """The region itself."""
        inner = {request: dict(scope) for request, scope in scopes.items()}
        batch.run(self.body.ops, inner)
        for request, scope in scopes.items():
            scope.update(
                zip(self.results, [inner[request][n] for n in self.body.yields], strict=True)
            )


OP = Segment
