"""Trees of constant branching: every node of a level gets as many children, drawn apart.

Recursive speculative decoding (Jeon et al. 2024, arXiv 2402.14160), its RSD-C: all nodes of depth i
get b_i children, drawn without replacement, and recursive rejection sampling judges them. Other
than the trees of `draft_model` the shape follows from one number a level, not from the measured
acceptance. RSD-S, whose shape is drawn by a stochastic beam, is not among them. At temperature 0
children are the best ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any, ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.static_trees import tree_text
from specplan.planner.trees import StaticTree, expansion_tree

WIDEST, DEEPEST, MOST_NODES = 4, 5, 48


@dataclass(frozen=True)
class RecursiveSamplingOptions(Options):
    """Which model drafts, and how wide.

    Attributes:
        draft: name of the draft model.
        branching: children of every node of the root's level, of the next one, and so on.
    """

    draft: str
    branching: tuple[int, ...]

    @property
    def tree(self) -> StaticTree:
        """The shape."""
        return expansion_tree(self.branching)

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return nodes_of(self.branching)

    @property
    def words(self) -> str:
        """`tree of 3-2-1 by draft`."""
        return f"tree of {'-'.join(map(str, self.branching))} by {self.draft}"

    def as_dict(self) -> dict[str, Any]:
        """The options, and the number of nodes for the reader."""
        return {**super().as_dict(), "nodes": self.nodes}


class RecursiveSampling(Method[RecursiveSamplingOptions]):
    """Few passes of the draft model, and several chances at every level."""

    name: ClassVar[str] = "recursive_sampling"
    engine_drafter: ClassVar[str] = "model"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "a draft model grows a tree of constant branching, drawn apart"
    paper: ClassVar[str] = "Jeon et al. 2024, arXiv 2402.14160"
    acceptance: ClassVar[str] = "rank of the accepted child among its choices"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[RecursiveSamplingOptions] | Refusal]:
        """Per draft model, branching factors that do not grow from level to level."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        if self.is_unasked(facts):
            reason = f'its trees are among all static trees: name "{self.name}" in methods for them'
            return [Refusal("constant branching", reason)]
        return [_family(facts, draft) for draft in facts.drafts]

    def plan(self, facts: ProblemFacts, options: RecursiveSamplingOptions) -> Plan:
        """The draft model grows the tree, level by level, and the target judges it."""
        draft, cache = options.draft, cache_of(options.draft)

        def forward(level: int, nodes: str) -> str:
            return f"forward {draft} {nodes} cache={cache}" + ("" if level else " pending=2")

        drafted = tree_text(options.tree, forward, drawn=not facts.greedy)
        judged = judge("%c", options.nodes, rule=None if facts.greedy else "recursive")
        body = f"{drafted}\n{judged}\ncommit {cache} %e"
        return single_round_plan(facts, self.name, (draft,), body)

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


def _family(facts: ProblemFacts, draft: str) -> Family[RecursiveSamplingOptions] | Refusal:
    name = f"constant branching by {draft}"
    profile = facts.profiles.get(Model(draft))
    if profile is None:
        return Refusal(name, facts.missing_profile(Model(draft)))
    if profile.key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return Refusal(name, reason)
    settings = tuple(
        RecursiveSamplingOptions(draft, factors)
        for factors in _worthwhile(profile)
        if factors[0] <= facts.drafts[draft].vocab_size
    )
    domain = {"branching": Domain(branchings(), "children of every node, level by level")}
    return Family(name, domain, settings)


def _worthwhile(profile: AcceptanceProfile) -> Iterator[tuple[int, ...]]:
    """Factors that emit more than any others of no more nodes and levels."""
    found: list[tuple[int, float]] = []
    for factors in branchings():
        tree = expansion_tree(factors)
        tokens = profile.tokens_per_round(tree.parents, tree.ranks).mean
        if all(depth > len(factors) or tokens > most + 1e-9 for depth, most in found):
            found.append((len(factors), tokens))
            yield factors


METHOD = RecursiveSampling()
