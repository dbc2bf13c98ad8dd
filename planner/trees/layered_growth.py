"""Grow whole layers while one more is worth its draft forward, then keep the best nodes.

Source: OPT-Tree (arXiv 2406.17276), section 3: with products of draft probabilities for
acceptance, the n most probable nodes are a tree, and no other of n nodes has more accepted tokens
expected. The released code compares one layer later, and so drafts one more than the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from specplan.planner.trees.drafted import Children, Drafted, Scored, best_of, offspring, tree_of


@dataclass(frozen=True)
class LayeredGrowth:
    """Draft layers of the `nodes` most probable children until one adds too little.

    Attributes:
        nodes: most nodes of a layer, and of the verified tree.
        threshold: delta; a layer that adds this many expected accepted tokens or fewer is the
            last one. `draft_threshold` derives it from the cost of a layer.
        depth: most layers.
    """

    nodes: int
    threshold: float
    depth: int

    def __call__(self, law: Children) -> Drafted:
        """What is drafted in a context."""
        layer: list[Scored] = [(1.0, ())]
        pool: list[Scored] = []
        widths: list[int] = []
        before = 0.0
        while layer and len(widths) < min(self.depth, self.nodes):
            widths.append(len(layer))
            layer = best_of(offspring(layer, law), self.nodes)
            pool = best_of([*pool, *layer], self.nodes)
            expected = sum(reached for reached, _ in pool)
            if expected - before <= self.threshold:
                break
            before = expected
        drafted = sum(widths[1:]) + len(layer)
        return Drafted(tree_of(pool), tuple(widths), drafted)
