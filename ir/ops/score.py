"""`score`: change the scores of a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_logits, given_nodes
from specplan.ir.types.value_types import ROOT, LogitsType, NumberType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Score(Op):
    """Change the scores of a tree: take them from `logits`, multiply them by `factor`, or both.

    With `logits` the score of each node becomes the log-probability of its token by its parent's
    logits, where there are any. `factor`, a number per request, multiplies the probability of every
    path. Everything else stays, so that the tree is judged as before.

    %s = score %t logits=%q
    %s = score %t factor=%w
    """

    keyword = "score"
    renamed = (("rows", "logits"),)
    positional = ("tree",)
    tree: Value
    logits: Value | None = None
    factor: Value | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """The tree itself, to which its nodes and logits still belong."""
        tree = context.expect(self.tree, TreeType, "score")
        if self.logits is None and self.factor is None:
            raise RuleError("arity", "score takes logits=, factor= or both")
        if self.logits is not None:
            check_logits(tree, context.expect(self.logits, LogitsType, "logits"), self.logits)
        if self.factor is not None:
            context.expect(self.factor, NumberType, "factor")
        return (tree,)

    def demand(self, step: Step, plan: Plan) -> Work:
        """A log-sum-exp per node, where logits are read."""
        read = "logits" if self.logits is not None else "factor"
        return Work(f"{self.keyword}:{read}", given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Other scores; the factor goes to the first node of each path."""
        tree = scope[self.tree]
        logits = None if self.logits is None else scope[self.logits]
        factor = 1.0 if self.factor is None else float(scope[self.factor])
        weight = log(max(factor, 1e-300))
        nodes = []
        for number, node in enumerate(tree.nodes):
            vector = None
            if logits is not None and number in tree.living:
                vector = logits.ahead(tree, node.parent)
            own = node.score if vector is None else world.log_probability(vector, node.token)
            nodes.append(replace(node, score=own + (weight if node.parent == ROOT else 0.0)))
        return (replace(tree, nodes=tuple(nodes)),)


OP = Score
