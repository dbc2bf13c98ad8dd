"""Static trees that are worth a price: the best of each load, and smaller and larger ones.

The search prices plans whole; what is proposed here is found by the tree's own objective, seconds
per token with verification by size and drafting by level width, at every load of the workload.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specplan.cost_models.timing.device import UnpricedError
from specplan.planner.facts import ProblemFacts
from specplan.planner.trees import AcceptanceTable, RoundTimes, StaticTree, TreeObjective

NODES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes that are proposed beside the best ones, at the depth that suits the middle load."""
DEPTH = 10
RANKS = 16
"""Ranks beyond this are never worth a node and are seldom measured."""


def worthwhile_trees(facts: ProblemFacts, draft: str) -> list[StaticTree]:
    """Trees of a drafter that some load may be served best by, each once, smaller ones first.

    The drafter is a model or a source. Chains are left out. Where the device has no price for some
    width, every size and depth is proposed.
    """
    objective = tree_objective(facts, draft)
    try:
        trees = list(_proposed(facts, draft, objective))
    except UnpricedError:
        trees = [objective.exact.tree(n, d) for d in range(1, DEPTH + 1) for n in NODES]
    kept = {tree: None for tree in trees if len(tree) and not tree.is_chain}
    return sorted(kept, key=lambda tree: (len(tree), tree.depth))


def tree_objective(facts: ProblemFacts, draft: str) -> TreeObjective:
    """The trees of a drafter up to the largest that are proposed."""
    table = AcceptanceTable.of_hazard(facts.profiles[draft].hazard, DEPTH, RANKS)
    return TreeObjective(table, max(NODES), DEPTH)


def _proposed(facts: ProblemFacts, draft: str, objective: TreeObjective) -> Iterator[StaticTree]:
    rounds = _round_times(facts, draft)
    for place, times in enumerate(rounds):
        choice = objective.best(times)
        yield choice.tree
        if place == len(rounds) // 2:
            for nodes in NODES:
                yield objective.exact.tree(nodes, int(choice.found[1:, nodes].argmin()) + 1)


def _round_times(facts: ProblemFacts, draft: str) -> list[RoundTimes]:
    """Seconds of the parts of a round at every load, judging and bookkeeping left to the search.

    Tokens that no model drafts are taken to come at once.
    """
    verify = facts.pass_seconds("target", max(NODES) + 1)
    drafting = np.zeros_like(verify)
    if draft in facts.shapes:
        drafting = facts.pass_seconds(draft, max(NODES))
    return [RoundTimes(*parts) for parts in zip(verify, drafting, strict=True)]
