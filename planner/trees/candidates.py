"""Static trees and chains that are worth a price, and those of other sizes near them.

The search prices plans whole; what is proposed here is found by the tree's own objective, seconds
per token with verification by size and drafting by level width, at every load of the workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model
from specplan.cost_models.devices.device import UnpricedError
from specplan.planner.facts import ProblemFacts
from specplan.planner.trees import (
    AcceptanceTable,
    RoundTimes,
    StaticTree,
    TreeObjective,
    chain,
)

NODES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes that are proposed beside the best ones, at the depth that suits the middle load."""
DEPTH = 10
RANKS = 16
"""Ranks beyond this are never worth a node and are seldom measured."""
NEAR = 1.25
"""Chains are proposed up to this many times the seconds per token of the best one."""


def worthwhile_trees(facts: ProblemFacts, draft: Drafter) -> list[StaticTree]:
    """Trees of a drafter that some load may be served best by, each once, smaller ones first.

    The drafter is a model, a head that draws or a source. Chains are left out. Where the device has
    no price for some width, every size and depth is proposed.
    """
    objective = tree_objective(facts, draft)
    try:
        trees = list(_proposed(facts, draft, objective))
    except UnpricedError:
        trees = [objective.exact.tree(n, d) for d in range(1, DEPTH + 1) for n in NODES]
    distinct = {tree: None for tree in trees if len(tree) and not tree.is_chain}
    return sorted(distinct, key=lambda tree: (len(tree), tree.depth))


def worthwhile_chains(facts: ProblemFacts, draft: Model, lengths: Sequence[int]) -> tuple[int, ...]:
    """Lengths of a draft model's chain that come near the best one at some load, rising.

    Where the device has no price for some width, every length is proposed.
    """
    hazard = facts.profiles[draft].hazard
    tokens = np.array([chain(n).value(AcceptanceTable.of_hazard(hazard, n, 1)) for n in lengths])
    try:
        verify = facts.pass_seconds("target", max(lengths) + 1)[:, list(lengths)]
        drafting = facts.pass_seconds(draft.name, 1)[:, :1] * np.array(lengths)
    except UnpricedError:
        return tuple(lengths)
    per_token = (verify + drafting) / tokens
    near = (per_token <= NEAR * per_token.min(axis=1, keepdims=True)).any(axis=0)
    return tuple(n for n, is_near in zip(lengths, near, strict=True) if is_near)


def layer_threshold(facts: ProblemFacts, draft: Drafter, beam: int) -> float:
    """Expected accepted tokens that one more layer of a tree must bring to be worth its pass.

    delta* = t_d / lambda at the middle load: what a draft pass over the layer's nodes takes, over
    what a token is worth, the seconds per token of the best static tree of this draft model.
    OPT-Tree (arXiv 2406.17276) gives t_d / t_plain as the least useful threshold; the time of a
    round is worth S times as many tokens, S the speedup.

    Args:
        facts: the problem; it knows the acceptance of the draft model.
        draft: the draft model.
        beam: nodes of a layer that get children.

    Raises:
        UnpricedError: the device has no price for some width.
    """
    rounds = _round_times(facts, draft)
    times = rounds[len(rounds) // 2]
    best = tree_objective(facts, draft).best(times)
    return float(times.draft_of(np.array([beam]))[0]) / best.seconds_per_token


def tree_objective(facts: ProblemFacts, draft: Drafter) -> TreeObjective:
    """The trees of a drafter up to the largest that are proposed."""
    table = AcceptanceTable.of_hazard(facts.profiles[draft].hazard, DEPTH, RANKS)
    return TreeObjective(table, max(NODES), DEPTH)


def left_by_trees(facts: ProblemFacts, draft: Drafter, loads: Sequence[int]) -> float:
    """Most that a tree which was not tried could save, a fraction of the seconds per token.

    Against the best tree found at each load; the most of them all. Counted are the forwards of
    rounds whose trees have at most the nodes, levels and ranks that are proposed.

    Args:
        facts: of the problem.
        draft: a drafter.
        loads: by their place in `facts.pass_seconds`, at least one.

    Raises:
        UnpricedError: the device has no price for some width.
    """
    rounds = _round_times(facts, draft)
    choices = tree_objective(facts, draft).best_of_each([rounds[load] for load in loads])
    return max(choice.gap for choice in choices)


def _proposed(
    facts: ProblemFacts, draft: Drafter, objective: TreeObjective
) -> Iterator[StaticTree]:
    rounds = _round_times(facts, draft)
    for place, choice in enumerate(objective.best_of_each(rounds)):
        yield choice.tree
        if place == len(rounds) // 2:
            for nodes in NODES:
                yield objective.exact.tree(
                    nodes, int(choice.seconds_by_cell[1:, nodes].argmin()) + 1
                )


def _round_times(facts: ProblemFacts, draft: Drafter) -> list[RoundTimes]:
    """Seconds of the parts of a round at every load, judging and bookkeeping left to the search.

    Tokens that no model drafts are taken to come at once.
    """
    verify = facts.pass_seconds("target", max(NODES) + 1)
    drafting = np.zeros_like(verify)
    if isinstance(draft, Model | Drawn) and draft.name in facts.shapes:
        drafting = facts.pass_seconds(draft.name, max(NODES))
    return [RoundTimes(*parts) for parts in zip(verify, drafting, strict=True)]
