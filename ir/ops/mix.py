"""`mix`: target and draft rows combined."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specplan.ir.context import Context
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


OP = Mix
