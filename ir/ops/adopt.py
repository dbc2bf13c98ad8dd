"""`adopt`: turn a path that was judged inside the round into drafted nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.bounds import check_tree_size
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_logits, given_nodes
from specplan.ir.types.value_types import ROOT, LogitsType, PathType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Adopt(Op):
    """Turn a path that was judged inside the round, bonus included, into drafted nodes.

    With `logits`, the ones that judged the path, its nodes count as drawn from them; without, as
    given. Nodes above the judged ones keep their identity.

    %i = accept %g target=%m rule=token by=%v at=%tip
    %o = adopt %g %i logits=%m
    """

    keyword = "adopt"
    renumbers = True
    renamed = (("rows", "logits"),)
    positional = ("tree", "path")
    tree: Value
    path: Value
    logits: Value | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """The path and its bonus in place of the nodes that were judged."""
        tree = context.expect(self.tree, TreeType, "adopt")
        path = context.expect(self.path, PathType, "adopt")
        if self.logits is not None:
            check_logits(tree, context.expect(self.logits, LogitsType, "logits"), self.logits)
        if tree.lineage is None or not tree.lineage.related(path.lineage):
            raise RuleError(
                "lineage", f"path %{self.path} was judged in another tree than %{self.tree}"
            )
        staying = max(tree.nodes - path.nodes, 0)
        nodes = staying + path.depth + 1
        check_tree_size(nodes)
        chain = tree.is_chain
        adopted = TreeType(
            nodes=nodes, depth=min(tree.depth + 1, nodes), newest_count=path.depth + 1,
            parents=tuple(range(-1, nodes - 1)) if chain else None, chain=chain,
            newest=tuple(range(staying, nodes)) if chain else None, ragged=True,
            origins=tree.origins | {"given" if self.logits is None else "draw"},
            siblings=tree.siblings,
            dropped_draws=tree.dropped_draws, whole=False, lineage=path.below,
            root_logits=tree.root_logits or self.logits is not None,
        )  # fmt: skip
        return (adopted,)

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """`logits=` are the ones that judged the path."""
        path = step.reads[self.path]
        if (
            self.logits is not None
            and isinstance(path, PathType)
            and path.target not in (None, self.logits)
        ):
            yield "law", f"%{self.path} was judged by %{path.target}; give logits=%{path.target}"

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The judged nodes give way to the path; its tokens follow the distribution of `logits`."""
        tree, path = scope[self.tree], scope[self.path]
        judged = set(tree.below([path.start]))
        stays = [i for i in range(len(tree.nodes)) if i not in judged]
        base, nodes = tree.only(stays), list[Node]()
        above = ROOT if path.start == ROOT else stays.index(path.start)
        longer = base
        for token in path.tokens:
            vector = None if self.logits is None else scope[self.logits].own(longer.path(above))
            score = 0.0 if vector is None else world.log_probability(vector, token)
            nodes.append(
                Node(
                    token,
                    above,
                    True,
                    score,
                    "given" if vector is None else "draw",
                    vector,
                )
            )
            longer = base.grown(nodes)
            above = len(longer.nodes) - 1
        return (longer if nodes else base.grown(()),)


OP = Adopt
