"""`relabel`: the same tree with new tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specplan.ir.context import Context
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.rule_error import RuleError
from specplan.ir.tree_types import check_logits, check_nodes, given_nodes
from specplan.ir.types import LogitsType, TreeType
from specplan.ir.values import Value


@dataclass(frozen=True, kw_only=True)
class Relabel(Op):
    """The same tree with new tokens: argmax of `logits`, tokens of `other`, or one `token`.

    %n = relabel %t logits=%l
    %n = relabel %w other=%x map=[5, 6, 7, 7]
    """

    keyword = "relabel"
    renumbers = True
    renamed = (("rows", "logits"),)
    positional = ("tree",)
    tree: Value
    logits: Value | None = None
    align: Literal["parent", "self"] = "parent"
    other: Value | None = None
    map: tuple[int, ...] = ()
    token: int | None = None
    at: Value | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """The same shape; rows of the old tokens say nothing about the new ones."""
        tree = context.expect(self.tree, TreeType, "relabel")
        rows = None if self.logits is None else context.expect(self.logits, LogitsType, "logits")
        at = None if self.at is None else context.nodes(self.at, "at")
        other = None if self.other is None else context.expect(self.other, TreeType, "other")
        if sum(choice is not None for choice in (rows, other, self.token)) != 1:
            raise RuleError("arity", "relabel takes one of logits=, other= and token=")
        if rows is not None:
            check_logits(tree, rows, self.logits)
        if at is not None:
            check_nodes(tree, at, self.at)
        if self.map and len(self.map) != tree.nodes:
            raise RuleError("children", f"map has {len(self.map)} entries for {tree.nodes} nodes")
        if other is not None:
            self._check_other(tree, other)
        named = replace(
            tree, laws=tree.laws | {"given"}, lineage=None,
            dropped_draws=tree.dropped_draws or (tree.drawn and at is not None)
            or (other is not None and other.drawn),
        )  # fmt: skip
        return (named,)

    def _check_other(self, tree: TreeType, other: TreeType) -> None:
        if any(index >= other.nodes for index in self.map):
            raise RuleError(
                "children", f"map points outside the {other.nodes} nodes of %{self.other}"
            )
        if not self.map and other.nodes != tree.nodes:
            raise RuleError("children", f"%{self.other} has {other.nodes} nodes, not {tree.nodes}")

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))


OP = Relabel
