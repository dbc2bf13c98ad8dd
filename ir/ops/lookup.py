"""`lookup`: add continuations from a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Scope, counts_of, numbered
from specplan.ir.needs import Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan, SourceState
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.state_types import with_source
from specplan.ir.types.tree_types import (
    attach,
    check_nodes,
    child_counts,
    given_nodes,
    nodes_before,
)
from specplan.ir.types.value_types import ROOT, TreeType
from specplan.ir.values import State, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Lookup(Op):
    """Add continuations, from a source, of the text that ends at each of the nodes `at`.

    `match`: shortest and longest suffix to search for, in tokens; with a shortest of 0, `@text`
    gives its own beginning where nothing matches. `length`: tokens of one
    continuation. `children`: continuations per node. `nodes`: most new nodes.

    %t = lookup @text %t0 at=%t0 match=[2, 4] length=5
    %t = lookup @trie %t0 at=%f children=3 length=8 nodes=16
    """

    keyword = "lookup"
    positional = ("source", "tree")
    same_as = (("at", "tree"),)
    touches = (("source", ("source", "text")),)
    source: State
    tree: Value
    at: Value
    match: tuple[int, ...] = ()
    children: int | tuple[int, ...] = 1
    length: int = 1
    nodes: int | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """The tree with chains below nodes; any of them may be missing."""
        tree = context.expect(self.tree, TreeType, "lookup")
        at = context.nodes(self.at, "at")
        check_nodes(tree, at, self.at)
        if self.match and (len(self.match) != 2 or self.match[0] > self.match[1]):
            raise RuleError("size", "match= is a list [shortest, longest] of suffix lengths")
        counts = child_counts(self.children, at)
        grown = attach(tree, at, counts, self.length, self.nodes)
        return (replace(grown, origins=tree.origins | {"given"}, ragged=True),)

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """The source can give as many continuations, in this form."""
        source = plan.state(self.source)
        kind = source.kind.name if isinstance(source, SourceState) else ""
        declared = tables.find("source", kind)
        if declared is not None and self.match and self.match[0] < 1:
            yield "type", f"source {kind} matches at least one token; only @text has a beginning"
        if declared is None or declared.finds == "merged":
            return
        most = self.children if isinstance(self.children, int) else max(self.children, default=0)
        if declared.finds == "one" and most > 1:
            yield "type", f"source {kind} gives one continuation; write children=1"
        elif self.nodes is not None and self.nodes < most * self.length:
            yield "type", f"source {kind} cannot merge continuations; leave nodes= out"

    @property
    def finds(self) -> int:
        """Levels of tokens that it adds at once."""
        return self.length

    def demand(self, step: Step, plan: Plan) -> Work:
        """The nodes that it may add, named with the kind of source."""
        width = given_nodes(step) - nodes_before(step, self.tree)
        return Work(with_source(self.keyword, plan, self.source), max(1, width))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Continuations below each node; nodes that the source does not give are dead."""
        tree, at = scope[self.tree], numbered(scope[self.at])
        counts = counts_of(self.children, len(at.numbers))
        most, new = max(counts, default=0), list[Node]()
        for number, count in zip(at.numbers, counts, strict=False):
            first, size = len(tree.nodes) + len(new), count * self.length
            if self.nodes is not None:
                size = min(size, self.nodes - len(new))
            if number not in tree.living:
                new += [Node(0, number, live=False)] * size
                continue
            for token, parent, live in world.source_nodes(self, tree.path(number), most)[:size]:
                new.append(Node(token, number if parent == ROOT else first + parent, live))
        return (tree.grown(new) if sum(counts) else tree,)


OP = Lookup
