"""`place`: add constant tokens below nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Scope, numbered
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.bounds import check_tree_size
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import attach, check_nodes, given_nodes, is_tip
from specplan.ir.types.value_types import ROOT, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Place(Op):
    """Add a chain of constant tokens below each of the nodes `at`; `upto` fills up to a depth.

    %t1 = place %t0 at=%t0 tokens=[0] upto=8
    %t1 = place %t at=%f tokens=[151643, 151643]
    """

    keyword = "place"
    positional = ("tree",)
    same_as = (("at", "tree"),)
    gone = (("probe", "forward levels= gives logits for the levels below a node"),)
    tree: Value
    at: Value
    tokens: tuple[int, ...]
    upto: int | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """The tree with a chain below each node; `upto` fills up to that depth."""
        tree = context.expect(self.tree, TreeType, "place")
        at = context.nodes(self.at, "at")
        check_nodes(tree, at, self.at)
        if self.upto is None:
            grown = attach(tree, at, (1,) * at.width, len(self.tokens), None)
        elif at.width != 1:
            raise RuleError("children", "place upto= takes one node in at=")
        elif tree.nodes == 0 and at.indices == (ROOT,):
            grown = attach(tree, at, (1,), self.upto, None)
        else:
            size, chain = max(self.upto, tree.nodes), tree.is_chain and is_tip(tree, at)
            check_tree_size(size)
            grown = replace(
                tree, nodes=size, depth=max(self.upto, tree.depth), newest=None,
                newest_count=self.upto, tips=False, ragged=True,
                parents=tuple(range(-1, size - 1)) if chain else None,
                chain=chain, lineage=None,
                dropped_draws=tree.dropped_draws or tree.drawn,
            )  # fmt: skip
        return (replace(grown, origins=tree.origins | {"given"}),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Constant tokens; with `upto=` below the deepest live node of a chain."""
        tree, at = scope[self.tree], numbered(scope[self.at]).numbers
        if self.upto is not None:
            tree = tree.only(tree.live_nodes)
            at = tree.leaves
        new: list[Node] = []
        for number in at:
            count = (
                len(self.tokens) if self.upto is None else max(self.upto - tree.depth(number), 0)
            )
            for step in range(count):
                above = len(tree.nodes) + len(new) - 1 if step else number
                new.append(Node(self.tokens[step % len(self.tokens)], above))
        placed = tree.grown(new)
        whole = tuple(range(len(placed.nodes)))
        return (placed if self.upto is None else replace(placed, newest=whole or (ROOT,)),)


OP = Place
