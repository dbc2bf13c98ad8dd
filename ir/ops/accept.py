"""`accept`: judge a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specplan.ir.meaning import Judged, Scope, numbered
from specplan.ir.needs import PROBABILITY_COPIES, Allocation, Sizes, Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.tables.declaration import Declaration
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_logits, check_nodes, nodes_before
from specplan.ir.types.value_types import ROOT, LogitsType, PathType, TreeType, UniformsType
from specplan.ir.values import Entry, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Accept(Op):
    """Judge a tree by a rule and the target's logits; gives the accepted path and its bonus.

    %a = accept %t target=%l
    %a = accept %t target=%l rule=token by=%u
    """

    keyword = "accept"
    positional = ("tree",)
    gone = (("law", "combine logits by mix law= and judge by those"),)
    entries = (("rule", "rule"),)
    tree: Value
    target: Value | None = None
    rule: Entry = Entry("greedy")
    by: Value | None = None
    at: Value | None = None

    @property
    def judges(self) -> Value:
        """The tree that it judges."""
        return self.tree

    @property
    def judges_by(self) -> Entry:
        """The rule by which it judges."""
        return self.rule

    def infer(self, context: Context) -> tuple[PathType]:
        """The accepted path of a tree, or of the nodes below one of its nodes."""
        tree = context.expect(self.tree, TreeType, "accept")
        exact = stated = bounded = False
        if self.target is not None:
            logits = context.expect(self.target, LogitsType, "target")
            check_logits(tree, logits, self.target)
            exact = logits.exact and logits.model == "target"
            stated, bounded = logits.exact, logits.exact or logits.bounded
        if self.by is not None:
            context.expect(self.by, UniformsType, "by")
        nodes, depth, below = tree.nodes, tree.depth, None
        if self.at is not None:
            at = context.nodes(self.at, "at")
            check_nodes(tree, at, self.at)
            nodes, below = nodes - at.seen, at.lineage
            depth = min(depth, nodes)
        path = PathType(
            depth=depth, nodes=nodes, rule=self.rule, exact=exact,
            target=self.target, whole=self.at is None, chain=tree.is_chain,
            dropped_draws=tree.dropped_draws, stated=stated,
            bounded=bounded, below=below, lineage=tree.lineage,
        )  # fmt: skip
        return (path,)

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """The rule gets the shape of tree, the logits and the uniforms that it needs."""
        rule, tree = tables.find("rule", self.rule.name), step.reads[self.tree]
        if isinstance(tree, TreeType) and rule is not None:
            yield from (("law", what) for what in self._misfits(step, rule, tree))

    def _misfits(self, step: Step, rule: Declaration, tree: TreeType) -> Iterator[str]:
        if rule.needs_logits != (self.target is not None):
            takes = "needs target=" if rule.needs_logits else "reads no logits; leave target= out"
            yield f"rule {rule.name} {takes}"
        if rule.chain_only and not tree.is_chain:
            yield f"rule {rule.name} judges chains only, and %{self.tree} may branch"
        if rule.children and tree.origins - set(rule.children):
            takes = f"rule {rule.name} judges nodes of how={' or '.join(rule.children)} only"
            yield f"{takes}, and %{self.tree} has nodes of how={', '.join(sorted(tree.origins))}"
        if rule.reads_probs and len(tree.siblings) > 1:
            ways = "with replacement at some nodes and without at others"
            yield f"children of %{self.tree} are drawn {ways}; use one how= for all"
        if rule.uniforms_per_node is not None:
            (path,) = step.gives
            judged = path.nodes if self.at and isinstance(path, PathType) else tree.nodes
            needed = rule.uniforms_per_node * judged + 1
            numbers = step.reads[self.by] if self.by is not None else None
            if not isinstance(numbers, UniformsType) or numbers.count < needed:
                yield f"rule {rule.name} needs by= with {needed} uniforms"
        elif self.by is not None:
            yield f"rule {rule.name} draws nothing; leave by= out"

    def demand(self, step: Step, plan: Plan) -> Work:
        """The nodes that are judged."""
        return Work(f"{self.keyword}:{self.rule.name}", nodes_before(step, self.tree))

    def bytes(self, step: Step, sizes: Sizes) -> Iterator[Allocation]:
        """Copies of the target's logits; one more where data decides the order of a chain.

        Of a tree that lacks logits, nodes up to the first without any are judged.
        """
        if self.rule.name == "greedy":
            return
        tree = step.reads[self.tree]
        logits = None if self.target is None else step.reads[self.target]
        assert isinstance(tree, TreeType)
        nodes = min(tree.nodes, logits.width) if isinstance(logits, LogitsType) else tree.nodes
        copies = PROBABILITY_COPIES + (tree.parents is None and tree.is_chain)
        yield Allocation(f"judging %{self.tree}", copies * sizes.probabilities(nodes + 1))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The path that the rule accepts; a dead one where the logits of its start are missing."""
        tree = scope[self.tree]
        start = ROOT if self.at is None else numbered(scope[self.at]).numbers[0]
        if self.target is None:
            path: list[int] = []
            while below := tree.children(path[-1] if path else start):
                path.append(below[0])
            return (Judged(tree, tuple(path), None, start),)
        logits = scope[self.target]
        if start not in tree.living or logits.own(tree.path(start)) is None:
            return (Judged(tree, start=start, dead=True),)
        by = None if self.by is None else scope[self.by]
        return (world.judged(self, tree, start, logits, by),)


OP = Accept
