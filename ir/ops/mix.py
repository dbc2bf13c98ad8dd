"""`mix`: target and draft rows combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.context import Context
from specplan.ir.meaning import Logits, Scope, Tree, World
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.tree_types import check_rows
from specplan.ir.types import RowsType, TreeType
from specplan.ir.values import Entry, Value


@dataclass(frozen=True, kw_only=True)
class Mix(Op):
    """Target and draft rows combined by an entry of the laws, before sampling settings.

    %m = mix %l over=%c law=contrastive
    %m = mix %l over=%c law=contrastive(beta=0.3)
    """

    keyword = "mix"
    positional = ("rows",)
    entries = (("law", "law"),)
    rows: Value
    over: Value
    law: Entry

    def infer(self, context: Context) -> tuple[RowsType]:
        """Rows of the same nodes, no longer the target's own."""
        rows = context.expect(self.rows, RowsType, "mix")
        over = context.expect(self.over, TreeType, "over")
        check_rows(over, rows, self.rows)
        return (replace(rows, exact=False),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One, whatever the rows."""
        return Work(self.keyword)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Where both have logits for a node."""
        tree, mixed = scope[self.over], dict[Any, Any]()
        for path, levels in scope[self.rows].of.items():
            other = _grown_from(tree, path)
            if other is not None:
                mixed[path] = (world.mixed(self.law, [levels[0], other]),)
        return (Logits(mixed),)


def _grown_from(tree: Tree, path: tuple[int, ...]) -> Any:
    for number in tree.numbers:
        if tree.path(number) == path:
            rows = [tree.nodes[i].logits for i in tree.children(number)]
            return next((row for row in rows if row is not None), tree.attached.get(number))
    return None


OP = Mix
