"""`graft`: join trees at the root."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any, Literal

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Path, Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.bounds import check_tree_size
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import given_nodes
from specplan.ir.types.value_types import RACES, ROOT, NumberType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World

LEAST_WEIGHT = 1e-30
"""Of a tree: a logarithm is taken of it."""


@dataclass(frozen=True, kw_only=True)
class Graft(Op):
    """Join trees at the root.

    With `same=keep` equal siblings stay separate nodes. With `same=merge` everything below equal
    siblings moves below the first of them, whose probability becomes the sum over all their paths.
    The other siblings get the score minus infinity. Drawn ones stay, so that a rule judges them by
    the probabilities that they were drawn from; those that were not drawn die. `weights`: a number
    per request for each tree, by which the probabilities of all its paths are multiplied; zero or
    less counts as almost nothing.

    %t = graft %drafted %looked
    %t = graft %a %b %c same=merge weights=[%u, %v, %w]
    """

    keyword = "graft"
    renumbers = True
    positional = ("trees",)
    trees: tuple[Value, ...]
    same: Literal["keep", "merge"] = "keep"
    weights: tuple[Value, ...] = ()

    def infer(self, context: Context) -> tuple[TreeType]:
        """One tree, in which the nodes of the first keep their numbers.

        Siblings that were drawn from several distributions are of origin `joined`: a rule whose
        children must come from one distribution does not judge them. Merging drops no draw except
        shared ones, which rules identify by their depth alone.
        """
        if not self.trees:
            raise RuleError("arity", "graft needs at least one tree")
        trees = tuple(context.expect(name, TreeType, "graft") for name in self.trees)
        if self.weights and len(self.weights) != len(trees):
            counts = f"weights= has {len(self.weights)} entries for {len(trees)} trees"
            raise RuleError("arity", counts)
        for name in self.weights:
            context.expect(name, NumberType, "weights")
        nodes = sum(tree.nodes for tree in trees)
        check_tree_size(nodes)
        races = sum(bool(tree.origins & RACES) for tree in trees)
        merged_draws = races > 1 or (self.same == "merge" and races > 0)
        origins = frozenset[str]().union(*(tree.origins for tree in trees))
        siblings = frozenset[str]().union(*(tree.siblings for tree in trees))
        if sum(tree.drawn for tree in trees) > 1:
            origins |= {"joined"}
            siblings |= {"draw"}
        joined = TreeType(
            nodes=nodes,
            depth=max(tree.depth for tree in trees),
            parents=self._parents(trees),
            newest=None,
            newest_count=max(nodes, 1),
            ragged=any(tree.ragged for tree in trees),
            chain=sum(tree.nodes > 0 for tree in trees) <= 1 and all(t.is_chain for t in trees),
            origins=origins,
            siblings=siblings,
            dropped_draws=merged_draws or any(tree.dropped_draws for tree in trees),
            whole=all(tree.whole for tree in trees),
            root_logits=any(tree.root_logits for tree in trees),
            lineage=trees[0].lineage,
        )
        return (joined,)

    def _parents(self, trees: tuple[TreeType, ...]) -> tuple[int, ...] | None:
        """The joined shape; None where some shape is not static or siblings are merged."""
        parents: list[int] = []
        for tree in trees:
            if tree.parents is None or self.same == "merge":
                return None
            offset = len(parents)
            parents += [ROOT if p == ROOT else p + offset for p in tree.parents]
        return tuple(parents)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the joined tree."""
        return Work(f"{self.keyword}:{self.same}", given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """All nodes of all trees, tree after tree."""
        nodes: list[Node] = []
        attached: dict[int, Any] = {}
        weights = [log(max(float(scope[name]), LEAST_WEIGHT)) for name in self.weights]
        for name, heavier in zip(self.trees, weights or [0.0] * len(self.trees), strict=True):
            first, tree = len(nodes), scope[name]
            attached |= {i if i == ROOT else i + first: row for i, row in tree.attached.items()}
            nodes += [
                replace(node, score=node.score + heavier)
                if node.parent == ROOT
                else replace(node, parent=node.parent + first)
                for node in tree.nodes
            ]
        joined = Tree(
            scope[self.trees[0]].base, tuple(nodes), tuple(range(len(nodes))) or (ROOT,), attached
        )
        if self.same == "keep":
            return (joined,)
        merged = joined
        for number in joined.numbers:
            merged = _merged(merged, number)
        return (_voted(merged, joined),)


def _merged(tree: Tree, number: int) -> Tree:
    """Nodes below equal children move below the first; the others die unless drawn."""
    first: dict[int, int] = {}
    nodes = list(tree.nodes)
    for child in tree.children(number):
        same = first.setdefault(nodes[child].token, child)
        if same == child:
            continue
        for below in range(len(nodes)):
            if nodes[below].parent == child:
                nodes[below] = replace(nodes[below], parent=same)
        if not nodes[child].drawn:
            nodes[child] = replace(nodes[child], live=False)
    return replace(tree, nodes=tuple(nodes))


def _voted(merged: Tree, joined: Tree) -> Tree:
    """The first node of each path gets the probability of all of them, the others none."""
    votes: dict[Path, float] = {}
    for number in joined.live_nodes:
        path = joined.path(number)
        votes[path] = votes.get(path, 0.0) + exp(joined.score(number))
    nodes, voted = list(merged.nodes), set[Path]()
    for number in merged.live_nodes:
        path, above = merged.path(number), votes.get(merged.path(merged.nodes[number].parent))
        share = votes[path] if above is None else min(votes[path] / above, 1.0) if above else 0.0
        nodes[number] = replace(
            nodes[number], score=log(share) if share and path not in voted else -inf
        )
        voted.add(path)
    return replace(merged, nodes=tuple(nodes))


OP = Graft
