"""`emit`: append a path to the text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import PathType
from specplan.ir.values import Value
from specplan.ir.world import World


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
        """The emitted path, which states may commit."""
        return (replace(context.expect(self.path, PathType, "emit"), emitted=True),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One path."""
        return Work(self.keyword)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The path as far as it was emitted."""
        path = scope[self.path]
        count = world.emit(path.tokens)
        bonus = path.bonus if count > len(path.nodes) else None
        return (replace(path, nodes=path.nodes[:count], bonus=bonus),)


OP = Emit
