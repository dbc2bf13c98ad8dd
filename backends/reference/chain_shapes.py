"""Chains whose length differs by request, as far as a plan can be refused for them; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.ir.infer import Step
from specplan.ir.ops import Accept, Adopt, Forward, Grow, Pick
from specplan.ir.scope import nodes_of
from specplan.ir.tree_types import child_counts
from specplan.ir.types import ROOT, Lineage, NodesType, PathType, TreeType, Type
from specplan.ir.values import State


class ChainStages:
    """What a round judges and keeps of its chain before the target sees it.

    Attributes:
        adopted: the latest chain that holds a path judged within the round, None before the first.
    """

    def __init__(self) -> None:
        self.adopted: Lineage | None = None
        self._first = 0
        """Nodes of the latest chain, where what grows of it begins; 0 before the first."""
        self._lengths: list[int] = []
        """Nodes that grew in each of the earlier stages."""
        self._tips: set[int] = set()
        self._below: dict[int, NodesType] = {}
        """By the identity of nodes that hang below a tip, that tip."""
        self._rows: dict[int, int] = {}
        """By the identity of rows of a tip and of what hangs below it, that of the tip."""
        self._own: dict[int, int] = {}
        """The same of rows of a tip alone."""
        self._paths: dict[int, Lineage | None] = {}
        self._reached: dict[State | None, tuple[int, int]] = {}
        """The last node of the chain that a cache ran: its stage, and which that grew there."""
        self._ways: dict[State | None, str] = {}

    def holds(self, tree: Type) -> bool:
        """Whether a tree is such a chain."""
        if not isinstance(tree, TreeType | NodesType) or tree.lineage is None:
            return False
        return self.adopted is not None and tree.lineage.extends(self.adopted)

    def is_tip(self, nodes: NodesType) -> bool:
        """Whether nodes are the tip of a chain, whatever its length."""
        return id(nodes) in self._tips

    def leaves(self, tree: TreeType, chosen: NodesType) -> None:
        """Note the tip of a chain, where every request has one, be it the root."""
        if tree.is_chain and (chosen.indices is not None or self.holds(tree)):
            self._tips.add(id(chosen))

    def below(self, op: Pick, step: Step) -> str | None:
        """Why a pick of what hangs below some nodes cannot run."""
        tree, (chosen,) = step.reads[op.tree], step.gives
        assert isinstance(tree, TreeType)
        at = None if op.at is None else nodes_of(step.reads, op.at, "at")
        if op.of != "from" or at is None or not (self.is_tip(at) and tree.is_chain):
            return "of=from, at= the tip of an earlier chain, is picked, and nothing else"
        self._below[id(chosen)] = at
        return None

    def grow(self, op: Grow, step: Step) -> str | None:
        """Why nothing can grow from the tip of such a chain."""
        tree, at = step.reads[op.tree], nodes_of(step.reads, op.at, "at")
        rows = step.reads[op.logits]
        assert isinstance(tree, TreeType)
        if not self.is_tip(at) or at.seen != tree.nodes or child_counts(op.children, at) != (1,):
            return "from the tip of a chain that holds a judged path one child grows, and no other"
        if op.how not in ("best", "draw"):
            return "how deep the tip of a chain that holds a judged path is differs by request"
        if self._own.get(id(rows)) != id(at):
            return "the row of the tip itself is read"
        return None

    def forward(self, op: Forward, step: Step) -> str | None:
        """Why a forward on such a chain, or below a tip, cannot run."""
        nodes = nodes_of(step.reads, op.nodes[0], "forward")
        if op.layers or op.skip or op.features or op.keep:
            return "chains of several lengths run through the whole stack, and leave no states"
        if len(op.nodes) > 1:
            return "a chain of several lengths runs in a pass of its own"
        tip = nodes if self.is_tip(nodes) else self._below.get(id(nodes))
        if tip is None:
            if op.cache in self._reached or not isinstance(step.reads[op.nodes[0]], TreeType):
                return "a chain of several lengths runs as a whole, in a cache that ran none of it"
            if op.write != "exact":
                return "a chain of several lengths runs as a whole for good, not as scratch"
        elif self._reached.get(op.cache) != self._above(tip):
            return f"@{op.cache} lacks what was kept of the chain before"
        elif self._ways.get(op.cache) != op.write:
            return f"@{op.cache} is written as scratch all round, or for good"
        self.note(op, nodes, step.gives)
        return None

    def note(self, op: Forward, nodes: NodesType, gives: Sequence[Type]) -> None:
        """Go on after a forward that runs on nodes and gives their rows."""
        last = max(nodes.indices, default=ROOT) + 1 if nodes.indices is not None else None
        if last is None:  # up to the end of the chain as it is
            last = 0 if nodes.lineage is None else nodes.lineage.nodes
        self._reached[op.cache] = (len(self._lengths), last - self._first)
        self._ways.setdefault(op.cache, op.write)
        below = self._below.get(id(nodes))
        if below is not None:
            self._rows.update({id(given): id(below) for given in gives})
        elif self.is_tip(nodes):
            self._own.update({id(given): id(nodes) for given in gives})

    def _above(self, tip: NodesType) -> tuple[int, int]:
        """The node above a tip: its stage, and which it is of those that grew there."""
        stage, grown = len(self._lengths), tip.seen - self._first
        return (stage, grown - 1) if grown else (stage - 1, self._lengths[-1])

    def accept(self, op: Accept, step: Step) -> str | None:
        """Why what hangs below a tip cannot be judged."""
        assert op.at is not None and op.target is not None
        tree, rows = step.reads[op.tree], step.reads[op.target]
        at, (path,) = nodes_of(step.reads, op.at, "at"), step.gives
        assert isinstance(tree, TreeType) and isinstance(path, PathType)
        if not self.is_tip(at) or self._rows.get(id(rows)) != id(at):
            return "rows of a tip and of what hangs below it judge that, and nothing else"
        if path.nodes != tree.nodes and not self.holds(tree):
            return "before it, the chain holds paths that were judged within the round only"
        self._paths[id(path)] = tree.lineage
        return None

    def adopt(self, op: Adopt, step: Step) -> str | None:
        """Why a path cannot be kept; notes the chain that holds it."""
        tree, path, (longer,) = step.reads[op.tree], step.reads[op.path], step.gives
        assert isinstance(tree, TreeType) and isinstance(longer, TreeType)
        if self._paths.get(id(path), ROOT) is not tree.lineage:
            return "a path is adopted by the chain in which it was judged"
        self._lengths.append(tree.nodes - self._first)
        self.adopted, self._first = longer.lineage, longer.nodes
        return None
