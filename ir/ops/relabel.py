"""`relabel`: replace the tokens of a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Scope, Tree, numbered
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_logits, check_nodes, given_nodes
from specplan.ir.types.value_types import ROOT, LogitsType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Relabel(Op):
    """Replace the tokens of a tree by the argmax of `logits`, tokens of `other`, or one `token`.

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
        """A new tree of the same shape, to which logits of the old one do not belong."""
        tree = context.expect(self.tree, TreeType, "relabel")
        given_logits = (
            None if self.logits is None else context.expect(self.logits, LogitsType, "logits")
        )
        at = None if self.at is None else context.nodes(self.at, "at")
        other = None if self.other is None else context.expect(self.other, TreeType, "other")
        if sum(choice is not None for choice in (given_logits, other, self.token)) != 1:
            raise RuleError("arity", "relabel takes exactly one of logits=, other= and token=")
        if given_logits is not None:
            check_logits(tree, given_logits, self.logits)
        if at is not None:
            check_nodes(tree, at, self.at)
        if self.map and len(self.map) != tree.nodes:
            raise RuleError("children", f"map= has {len(self.map)} entries for {tree.nodes} nodes")
        if other is not None:
            self._check_other(tree, other)
        named = replace(
            tree, origins=tree.origins | {"given"}, lineage=None, root_logits=False, tips=False,
            newest=tuple(range(tree.nodes)) or (ROOT,), newest_count=max(tree.nodes, 1),
            dropped_draws=tree.dropped_draws or (tree.drawn and at is not None)
            or (other is not None and other.drawn),
        )  # fmt: skip
        return (named,)

    def _check_other(self, tree: TreeType, other: TreeType) -> None:
        if any(index >= other.nodes for index in self.map):
            raise RuleError(
                "children", f"map= has entries beyond the {other.nodes} nodes of %{self.other}"
            )
        if not self.map and other.nodes != tree.nodes:
            raise RuleError(
                "children", f"%{self.other} has {other.nodes} nodes for {tree.nodes}; give map="
            )

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The same shape with other tokens; a token from a dead node is dead."""
        tree = scope[self.tree]
        at = None if self.at is None else set(numbered(scope[self.at]).numbers)
        other = None if self.other is None else scope[self.other]
        logits = None if self.logits is None else scope[self.logits]

        def new(number: int, node: Node) -> Node:
            if at is not None and number not in at:
                return node
            if other is not None:
                source = self.map[number] if self.map else number
                token, live = other.nodes[source].token, source in other.living
                return Node(token, node.parent, live)
            if logits is None:
                return Node(self.token or 0, node.parent, node.live)
            asked = number if self.align == "self" else node.parent
            vector = logits.own(tree.path(asked)) if number in tree.living else None
            if vector is None:
                return Node(0, node.parent, live=False)
            (token,) = world.likeliest(vector, 1)
            return Node(token, node.parent, score=world.log_probability(vector, token))

        nodes = tuple(new(number, node) for number, node in enumerate(tree.nodes))
        return (Tree(tree.base, nodes, tuple(range(len(nodes))) or (ROOT,)),)


OP = Relabel
