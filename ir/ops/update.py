"""`update`: a source is taught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan, SourceState
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.state_types import with_source
from specplan.ir.types.tree_types import check_logits
from specplan.ir.types.value_types import LogitsType, TreeType
from specplan.ir.values import State, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Update(Op):
    """Teach a source the logits of all judged nodes, or the last tokens of each leaf.

    update @log %t logits=%l
    update @pool %x last=3
    """

    keyword = "update"
    renamed = (("rows", "logits"),)
    positional = ("source", "tree")
    touches = (("source", ("source",)),)
    writes = ("source",)
    source: State
    tree: Value
    logits: Value | None = None
    last: int | None = None

    def infer(self, context: Context) -> tuple[()]:
        """No result; the operand is a tree."""
        tree = context.expect(self.tree, TreeType, "update")
        if (self.logits is None) == (self.last is None):
            raise RuleError("arity", "update takes exactly one of logits= and last=")
        if self.logits is not None:
            check_logits(tree, context.expect(self.logits, LogitsType, "logits"), self.logits)
        source = context.plan.state(self.source)
        if isinstance(source, SourceState) and source.scope == "read_only":
            raise RuleError(
                "state", f"@{self.source} is declared with scope=read_only and cannot be updated"
            )
        return ()

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """The source can learn what the op teaches."""
        source, tree = plan.state(self.source), step.reads[self.tree]
        if not isinstance(source, SourceState) or not isinstance(tree, TreeType):
            return
        declared = tables.find("source", source.kind.name)
        taught = "logits" if self.logits is not None else "runs" if tree.nodes else "text"
        if declared is None or declared.learns is None or taught in declared.learns:
            return
        learns = " and ".join(_TAUGHT[one] for one in declared.learns) or "nothing"
        yield "type", f"source {declared.name} learns {learns}, not {_TAUGHT[taught]}"

    def demand(self, step: Step, plan: Plan) -> Work:
        """One update, named with the kind of source."""
        return Work(with_source(self.keyword, plan, self.source))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Logits of judged nodes, runs of drafted ones, or the text itself."""
        world.learn(
            self.source,
            scope[self.tree],
            None if self.logits is None else scope[self.logits],
            self.last,
        )
        return ()


_TAUGHT = {
    "logits": "logits of judged nodes (logits=)",
    "text": "the text (last= of a tree without drafted nodes)",
    "runs": "runs of drafted tokens (last=)",
}


OP = Update
