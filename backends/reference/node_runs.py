"""Which nodes the caches of a round have run, as far as that is known before it runs; no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from specplan.ir.ops import Forward
from specplan.ir.types import ROOT, NodesType
from specplan.ir.values import Span, State

_Key = tuple[State | None, tuple[Span, ...], str]


class NodeRuns:
    """What forwards have run of the trees of a round.

    Attributes:
        pruned: a choice by score has left some nodes of the tree, so that a number stands for
            different nodes of different requests.
    """

    def __init__(self) -> None:
        self.pruned = False
        self._begun: set[_Key] = set()
        self._perhaps: defaultdict[_Key, set[int]] = defaultdict(set)
        self._surely: defaultdict[_Key, set[int]] = defaultdict(set)
        self._choices: defaultdict[State | None, set[int]] = defaultdict(set)
        self._above: dict[int, NodesType] = {}
        self._spent: set[State | None] = set()
        self._skipped: dict[State | None, tuple[str, ...]] = {}

    def begun(self, op: Forward) -> bool:
        """Whether an earlier forward has run on these layers of the cache."""
        return _key(op) in self._begun

    def grow(self, new: Iterable[int], at: NodesType) -> None:
        """Note that new nodes hang somewhere below `at`."""
        self._above.update(dict.fromkeys(new, at))

    def prune(self) -> None:
        """Note that nodes get other numbers, which differ by request."""
        self._spent |= {cache for (cache, _, _), nodes in self._perhaps.items() if nodes}
        self._perhaps.clear()
        self._surely.clear()
        self._choices.clear()
        self.pruned = True

    def run(self, op: Forward, nodes: NodesType, *, whole: bool) -> str | None:
        """Why a forward cannot run, or None; notes what it runs.

        Args:
            op: the forward.
            nodes: of one tree.
            whole: they are all its nodes.
        """
        shaped = nodes.lineage is None or nodes.lineage.parents is None
        own = self.pruned or nodes.indices is None
        could = nodes.among if nodes.indices is None else nodes.indices
        if could is None:
            return "its nodes are not known before it runs"
        drafted = set(could) - {ROOT}
        mixed = own or (shaped and drafted) or bool(op.layers and self._choices[op.cache])
        reason = self._scratch(op) if op.write == "scratch" else None
        if reason is None and mixed:
            reason = self._own_nodes(op, drafted, whole)
        if reason is not None:
            return reason
        key = _key(op)
        if drafted & self._perhaps[key]:
            return f"node {min(drafted & self._perhaps[key])} has run in this round already"
        if not whole and (own or shaped or self._choices[op.cache]):
            for node in sorted(drafted):
                if not self._has_parent(op, node, drafted if nodes.indices is not None else set()):
                    return f"whether the parent of node {node} has run is not known before it runs"
        self._begun.add(key)
        self._perhaps[key] |= drafted
        if nodes.indices is None:
            self._choices[op.cache].add(id(nodes))
        else:
            self._surely[key] |= drafted
        return None

    def _scratch(self, op: Forward) -> str | None:
        """Why a pass cannot write as scratch where the text's own keys and values go."""
        if op.features is not None or op.keep is not None:
            return "hidden states of passes that write as scratch are not kept"
        if any(cache == op.cache and write == "exact" for cache, _, write in self._begun):
            return f"@{op.cache} holds nodes of this round for good: scratch would write over them"
        if self._skipped.setdefault(op.cache, op.skip) != op.skip:
            return f"passes that write to @{op.cache} as scratch leave out the same blocks"
        return None

    def _own_nodes(self, op: Forward, drafted: set[int], whole: bool) -> str | None:
        """Why nodes that differ by request cannot run."""
        layered = op.layers or any(cache == op.cache and layers for cache, layers, _ in self._begun)
        if op.write == "scratch":
            return "nodes that scores choose run for good, not as scratch"
        if layered or op.features is not None or op.keep is not None:
            return "nodes that scores choose run through the whole stack, and leave no states"
        if self.pruned and drafted and op.cache in self._spent:
            return f"@{op.cache} may have run some of its nodes before they were pruned"
        if self.pruned and not whole:
            return "a tree that was pruned runs as a whole"
        return None

    def _has_parent(self, op: Forward, node: int, beside: set[int]) -> bool:
        """Whether a node's parent ran in the cache before, or runs beside it."""
        at = self._above.get(node)
        if at is None or id(at) in self._choices[op.cache]:
            return at is not None
        could = at.among if at.indices is None else at.indices
        ran = self._surely[_key(op)] | beside | {ROOT}
        return could is not None and set(could) <= ran


def _key(op: Forward) -> _Key:
    return op.cache, op.layers, op.write
