"""Trees of constant branching: all nodes of a level get equally many children, none drawn twice.

Recursive speculative decoding (Jeon et al. 2024, arXiv 2402.14160), its RSD-C: all nodes of depth i
get b_i children, drawn without replacement, and recursive rejection sampling judges them. The trees
of `draft_model` follow the measured acceptance; here the shape follows from one number a level. At
temperature 0 children are the best ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Option, Options, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.per_drafter import PerDraftModel, family_by
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.static_trees import tree_text, undominated
from specplan.planner.trees import StaticTree, expansion_tree

WIDEST, DEEPEST, MOST_NODES = 4, 5, 48


@dataclass(frozen=True)
class RecursiveSamplingOptions(Options):
    """Which model drafts, and how wide."""

    reads = "tree of {branching} by {draft}"
    derived = MappingProxyType({"nodes": Option("drafted nodes")})

    draft: DraftName
    branching: Annotated[tuple[int, ...], Option("children of every node, level by level")]

    @property
    def tree(self) -> StaticTree:
        """The shape."""
        return expansion_tree(self.branching)

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return nodes_of(self.branching)


class RecursiveSampling(PerDraftModel[RecursiveSamplingOptions]):
    """Few passes of the draft model, and several chances at every level."""

    summary = "a draft model grows a tree of constant branching, drawn apart"
    paper = "Jeon et al. 2024, arXiv 2402.14160"
    differs = "Constant branching (RSD-C) only; `stochastic_beam` is the paper's RSD-S."
    acceptance = "rank of the accepted child among its choices"
    engine_drafter = "model"
    shape = "static tree"
    by_name = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[RecursiveSamplingOptions] | Refusal]:
        """Those of every draft model, where the problem names the method."""
        if facts.drafts and self.is_unasked(facts):
            words = f'its trees are among all static trees: name "{self.name}" in methods for them'
            return [Refusal("constant branching", Reason(words, Cause.OPT_IN))]
        return super().choices(facts)

    def families(
        self, facts: ProblemFacts, draft: str
    ) -> Sequence[Family[RecursiveSamplingOptions] | Refusal]:
        """Branching factors that do not grow from level to level."""
        widest = facts.drafts[draft].vocab_size

        def settings(profile: AcceptanceProfile) -> Iterator[RecursiveSamplingOptions]:
            trees = ((one, expansion_tree(one)) for one in branchings())
            tokens = profile.tokens_per_round
            priced = (
                (one, (len(one), len(tree)), tokens(tree.parents, tree.ranks).mean)
                for one, tree in trees
            )
            worthwhile = (one for one in undominated(priced) if one[0] <= widest)
            return map(partial(RecursiveSamplingOptions, draft), worthwhile)

        name = f"constant branching by {draft}"
        return [family_by(facts, name, Model(draft), settings, trees=True)]

    def plan(self, facts: ProblemFacts, options: RecursiveSamplingOptions) -> Plan:
        """The draft model grows the tree, level by level, and the target judges it."""
        drafted = tree_text(options.tree, draft_passes(options.draft), drawn=not facts.greedy)
        return draft_and_verify(facts, self, drafted, options.nodes, models=(options.draft,))

    def drafter(self, facts: ProblemFacts, options: RecursiveSamplingOptions) -> Drafter | None:
        """The draft model."""
        return Model(options.draft)


def nodes_of(branching: Sequence[int]) -> int:
    """Nodes of a tree: the sum over levels of all products."""
    return sum(prod(branching[: level + 1]) for level in range(len(branching)))


@cache
def branchings() -> tuple[tuple[int, ...], ...]:
    """Factors that never grow and do not all draft one child, smaller trees first."""
    every = (
        factors
        for depth in range(1, DEEPEST + 1)
        for factors in product(range(WIDEST, 0, -1), repeat=depth)
        if list(factors) == sorted(factors, reverse=True)
        if factors[0] > 1 and nodes_of(factors) <= MOST_NODES
    )
    return tuple(sorted(every, key=lambda factors: (nodes_of(factors), len(factors))))


METHOD = RecursiveSampling()
