"""`emit`: a path becomes text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specplan.ir.context import Context
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types import PathType
from specplan.ir.values import Value


@dataclass(frozen=True, kw_only=True)
class Emit(Op):
    """Append a path to the text, cut after the first stop token and at the limit.

    %a = accept %t target=%l
    %e = emit %a
    """

    keyword = "emit"
    positional = ("path",)
    path: Value

    def infer(self, context: Context) -> tuple[PathType]:
        """The path as it was emitted: what states may commit."""
        return (replace(context.expect(self.path, PathType, "emit"), emitted=True),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One path."""
        return Work(self.keyword)


OP = Emit
