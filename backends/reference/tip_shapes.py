"""Chains that were carried on and grow from their tips, as far as a plan can be refused; no torch.

How much of such a chain is left differs by request, and so does its tip, be it the root. What grows
there has one place for all requests; what it hangs on is each request's own.
"""

from __future__ import annotations

from dataclasses import replace

from specplan.ir.infer import Step
from specplan.ir.ops import Accept, Grow, Pick
from specplan.ir.scope import nodes_of
from specplan.ir.tree_types import child_counts
from specplan.ir.types import ROOT, Lineage, LogitsType, NodesType, TreeType, Type


class CarriedTips:
    """Tips of chains whose length differs by request, and what has grown there."""

    def __init__(self) -> None:
        self._tips: dict[int, TreeType] = {}
        self._grown: dict[Lineage, int] = {}
        """By the first tree that grew from tips, the nodes of the chain before it."""

    def pick(self, op: Pick, step: Step) -> None:
        """Note tips that are picked."""
        tree, (chosen,) = step.reads[op.tree], step.gives
        assert isinstance(tree, TreeType) and isinstance(chosen, NodesType)
        ragged = tree.is_chain and tree.parents is not None and chosen.indices is None
        if op.of == "leaves" and ragged:
            self._tips[id(chosen)] = tree

    def is_tip(self, nodes: NodesType) -> bool:
        """Whether nodes are such tips."""
        return id(nodes) in self._tips

    def grown(self, tree: Type) -> int | None:
        """Of a chain that grew from tips, the nodes that it had before; None of all others."""
        if not isinstance(tree, TreeType) or tree.lineage is None or not tree.is_chain:
            return None
        return next((n for one, n in self._grown.items() if tree.lineage.extends(one)), None)

    def known_above(self, at: NodesType) -> NodesType:
        """Tips with the nodes that they are chosen from."""
        tree = self._tips[id(at)]
        return replace(at, among=(ROOT, *range(tree.nodes)))

    def grow(self, op: Grow, step: Step) -> str | None:
        """Why nothing can grow from tips; notes what does."""
        tree, rows, (grown,) = step.reads[op.tree], step.reads[op.logits], step.gives
        at = nodes_of(step.reads, op.at, "at")
        assert isinstance(tree, TreeType) and isinstance(grown, TreeType)
        if tree is not self._tips[id(at)] or child_counts(op.children, at) != (1,):
            return "from the tip of a chain that was carried on one child grows, once"
        if op.how == "shared":
            return "how deep the tip of a chain that was carried on is differs by request"
        wanted = {ROOT, *range(tree.nodes)}
        known = isinstance(rows, LogitsType) and wanted <= set(rows.indices or ())
        if not known:
            return "any node of a chain that was carried on may be its tip: rows of all are read"
        if op.how != "best" and tree.laws != {"draw"}:
            return "below nodes that were looked up, or carried on, children are ranked"
        assert grown.lineage is not None
        self._grown[grown.lineage] = tree.nodes
        return None

    def accept(self, op: Accept, step: Step) -> str | None:
        """Why a chain that grew from tips cannot be judged."""
        tree = step.reads[op.tree]
        rows = None if op.target is None else step.reads[op.target]
        before = self.grown(tree)
        if before is None or not isinstance(rows, LogitsType):
            return None
        if {ROOT, *range(before)} <= set(rows.indices or ()):
            return None
        return "what was carried on of a chain is judged with rows of the root and of all of it"
