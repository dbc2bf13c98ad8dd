"""`pick`: nodes of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any, Literal

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Picked, Scope, Tree, numbered
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_nodes
from specplan.ir.types.value_types import ROOT, NodesType, NumberType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World

_Indices = tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Pick(Op):
    """Nodes of a tree: by place, by index, or the best, the worst or all above a bar by score.

    A path score sums the log-probabilities along a node's path, of the rows that its tokens were
    ranked by, as they are: temperature 1, nothing left out, whatever the request's settings; what
    was looked up is certain. `above` compares the probability, of the path or of the node alone,
    with a number. Among equals the shallower comes first, then the earlier.

    %f = pick %t of=newest
    %b = pick %t of=all best=16
    """

    keyword = "pick"
    positional = ("tree",)
    narrowed = (("of", "Placed probes are gone: forward levels= looks ahead."),)
    tree: Value
    of: Literal["newest", "leaves", "all", "from"]
    at: Value | None = None
    nodes: tuple[int, ...] | None = None
    best: int | None = None
    worst: int | None = None
    by: Literal["path", "own"] = "path"
    count: Value | None = None
    above: float | Value | None = None

    def infer(self, context: Context) -> tuple[NodesType]:
        """Nodes by place, index or score."""
        tree = context.expect(self.tree, TreeType, "pick")
        if self.count is not None:
            context.expect(self.count, NumberType, "count")
        if isinstance(self.above, Value):
            context.expect(self.above, NumberType, "above")
        at = None if self.at is None else context.nodes(self.at, "at")
        if at is not None:
            check_nodes(tree, at, self.at)
        if sum(choice is not None for choice in (self.nodes, self.best, self.worst)) > 1:
            raise RuleError("arity", "pick takes one of nodes=, best= and worst=")
        indices, width = self._placed_at(tree, at)
        last_of_chain = self.of == "newest" and tree.is_chain and tree.newest_count == 1
        tips = self.of == "leaves" or last_of_chain or (self.of == "newest" and tree.tips)
        seen = tree.nodes if tips else 0
        if self.nodes is not None:
            return (_numbered(self.nodes, tree, indices, width, seen),)
        bound = self.best if self.best is not None else self.worst
        most = width if bound is None else min(bound, width)
        if self.above is not None:  # a node scores no better than its parent: by path, a tree
            closed = self.of == "all" and self.by == "path"
            return (NodesType(most, None, tree.lineage, False, closed, seen, indices),)
        if self.count is not None or most < width or (bound is not None and indices is None):
            closed = self.of == "all" and self.best is not None and self.by == "path"
            return (NodesType(most, None, tree.lineage, False, closed, seen, indices),)
        holds_root = indices is not None and ROOT in indices
        return (NodesType(width, indices, tree.lineage, holds_root, seen=seen),)

    def _placed_at(self, tree: TreeType, at: NodesType | None) -> tuple[_Indices, int]:
        """The nodes that it picks from, None where data decides, and their largest count."""
        match self.of:
            case "newest":
                return tree.newest, tree.newest_count
            case "all":
                everything = tuple(range(tree.nodes)) or (ROOT,)
                return everything, len(everything)
            case "leaves":
                leaves = tree.leaves
                if leaves is None:
                    return None, 1 if tree.is_chain else max(tree.nodes, 1)
                return (None if tree.ragged else leaves), len(leaves)
            case "from":
                if at is None:
                    raise RuleError("type", "pick of=from needs at=, the nodes to start from")
                return _below(tree, at)

    def demand(self, step: Step, plan: Plan) -> Work:
        """The nodes that it ranks; none where it picks by place."""
        if self.best is None:
            return Work(self.keyword)
        tree = step.reads[self.tree]
        assert isinstance(tree, TreeType)
        return Work("pick:best", tree.nodes if self.of == "all" else tree.newest_count)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """By place, number or score; by score of live nodes, the root where there are none."""
        tree = scope[self.tree]
        match self.of:
            case "newest":
                numbers = list(tree.newest)
            case "leaves":
                numbers = tree.leaves
            case "all":
                numbers = list(range(len(tree.nodes))) or [ROOT]
            case "from":
                tops = numbered(scope[Value(self.at or "")]).numbers
                numbers = [*tops, *tree.below(tops)]
        if self.nodes is not None:
            return (Picked(tree, [numbers[i] for i in self.nodes if i < len(numbers)]),)
        if self.above is not None:
            bar = scope[self.above] if isinstance(self.above, Value) else self.above
            alive = (i for i in numbers if i != ROOT and i in tree.living)
            numbers = [i for i in alive if exp(self._score(tree, i)) > bar]
        bound = self.best if self.best is not None else self.worst
        if bound is None and self.count is None:
            return (Picked(tree, numbers),)
        drafted = [i for i in numbers if i in tree.living and i != ROOT]
        most = len(numbers) if bound is None else bound
        most = most if self.count is None else min(most, max(int(scope[self.count]), 0))
        worst, own = self.worst is not None, self.by == "own"
        if not drafted:
            return (Picked(tree, [i for i in numbers if i == ROOT][:most]),)
        return (Picked(tree, tree.ranked(drafted, most, worst=worst, own=own)),)

    def _score(self, tree: Tree, number: int) -> float:
        return tree.nodes[number].score if self.by == "own" else tree.score(number)


def _below(tree: TreeType, at: NodesType) -> tuple[_Indices, int]:
    """Some nodes and all nodes below them."""
    if tree.parents is None or at.indices is None:
        grown = at.seen and tree.is_chain  # below the tip of an earlier chain
        return None, 1 + tree.nodes - (at.seen if grown else 0)
    below = set(at.indices)
    for node, parent in enumerate(tree.parents):
        if parent in below:
            below.add(node)
    return tuple(sorted(below)), len(below)


def _numbered(
    nodes: tuple[int, ...], tree: TreeType, indices: _Indices, width: int, seen: int
) -> NodesType:
    if any(index >= width for index in nodes) or len(set(nodes)) != len(nodes):
        raise RuleError("children", f"nodes={list(nodes)} must be different numbers below {width}")
    if indices is None:
        return NodesType(len(nodes), None, tree.lineage, seen=seen)
    chosen = tuple(indices[index] for index in nodes)
    return NodesType(len(nodes), chosen, tree.lineage, ROOT in chosen, seen=seen)


OP = Pick
