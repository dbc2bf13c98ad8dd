"""A smaller model drafts, as a chain or as a static tree, and the target verifies.

Chains follow Leviathan et al. 2022 (arXiv 2211.17192); trees follow Sequoia (arXiv 2402.12374):
the shape with the most expected tokens under the measured acceptance by depth and rank, children
drawn without replacement, accepted by the recursive rule. At temperature 0 children are the best
ranks and the rule is greedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from specplan.ir.plan import Plan
from specplan.planner.chain_drafters import ChainDrafter, chain_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.growing import TREE_DOMAINS, TreeOptions, tree_text
from specplan.planner.method import Domain, Family, Method, Refusal
from specplan.planner.plan_text import cache_of
from specplan.planner.proposer import Proposer
from specplan.planner.trees import StaticTree, TreeSearch, chain
from specplan.planner.worthwhile_trees import (
    tree_objective,
    worthwhile_chains,
    worthwhile_trees,
)

CHAIN_LENGTHS = tuple(range(1, 17))


@dataclass(frozen=True)
class DraftModelOptions(TreeOptions):
    """Which model drafts, and what shape."""


class DraftModel(Method[DraftModelOptions]):
    """Speculative decoding with a separate draft model that shares the target's tokenizer."""

    name: ClassVar[str] = "draft_model"
    drafter: ClassVar[str] = "model"
    summary: ClassVar[str] = "a smaller model drafts a chain or a static tree of tokens"
    paper: ClassVar[str] = (
        "Leviathan et al. 2022, arXiv 2211.17192; trees: Chen et al. 2024, arXiv 2402.12374"
    )
    acceptance: ClassVar[str] = "rank of the accepted child among its choices"
    needs_draft_model: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[DraftModelOptions] | Refusal]:
        """Per draft model: chains of up to 16 tokens, and trees by nodes and depth."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        return [family for draft in facts.drafts for family in _families(facts, draft)]

    def plan(self, facts: ProblemFacts, options: DraftModelOptions) -> Plan:
        """The draft model grows the shape, the target judges it."""
        drafter, tree = Proposer(options.draft), options.tree
        if tree.is_chain:
            return chain_plan(facts, self.name, drafter, len(tree))
        drafted = _tree(options.draft, tree, facts.greedy)
        said = ChainDrafter.of(drafter)
        return said.plan(facts, self.name, drafted, len(tree), rule="recursive")

    def proposer(self, options: DraftModelOptions) -> str | None:
        """The draft model."""
        return options.draft


def _families(facts: ProblemFacts, draft: str) -> Sequence[Family[DraftModelOptions] | Refusal]:
    chains, trees = f"chain by {draft}", f"static tree by {draft}"
    if draft not in facts.profiles:
        reason = facts.missing_profile(draft)
        return [Refusal(chains, reason), Refusal(trees, reason)]
    lengths = worthwhile_chains(facts, draft, CHAIN_LENGTHS)
    chain_settings = tuple(_options(draft, chain(length)) for length in lengths)
    found: list[Family[DraftModelOptions] | Refusal] = [
        Family(chains, {"length": Domain(lengths, "drafted tokens")}, chain_settings)
    ]
    if facts.profiles[draft].key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return [*found, Refusal(trees, reason)]
    tree_settings = tuple(_options(draft, tree) for tree in worthwhile_trees(facts, draft))
    if not tree_settings:
        reason = "no second choice of the draft model is ever accepted"
        return [*found, Refusal(trees, reason)]
    return [*found, Family(trees, TREE_DOMAINS, tree_settings, _Trees(facts, draft))]


@dataclass(frozen=True, eq=False)
class _Trees:
    """The tree with the most tokens of any size and depth."""

    facts: ProblemFacts
    draft: str

    def __call__(self, point: Mapping[str, Any]) -> DraftModelOptions | None:
        """The tree of a point; None where the best one is smaller, or a chain."""
        nodes, depth = int(point["nodes"]), int(point["depth"])
        tree = self._search.tree(nodes, depth)
        if (len(tree), tree.depth) != (nodes, depth) or tree.is_chain:
            return None
        return _options(self.draft, tree)

    @cached_property
    def _search(self) -> TreeSearch:
        return tree_objective(self.facts, self.draft).exact


def _options(draft: str, tree: StaticTree) -> DraftModelOptions:
    return DraftModelOptions(draft, tree.parents, tree.ranks)


def _tree(draft: str, tree: StaticTree, greedy: bool) -> str:
    """The tree as `%c`; the first level catches up the text."""

    def forward(level: int, nodes: str) -> str:
        pending = "" if level else " pending=2"
        return f"forward {draft} {nodes} cache={cache_of(draft)}{pending}"

    return tree_text(tree, forward, drawn=not greedy)


METHOD = DraftModel()
