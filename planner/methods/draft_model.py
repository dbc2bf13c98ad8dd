"""A smaller model drafts, as a chain or as a static tree, and the target verifies.

Chains follow Leviathan et al. 2022 (arXiv 2211.17192); trees follow Sequoia (arXiv 2402.12374):
the shape with the most expected tokens under the measured acceptance by depth and rank, children
drawn without replacement, accepted by the recursive rule. At temperature 0 children are the best
ranks and the rule is greedy.

Above temperature 0 chains may be judged as a whole (block verification, Sun et al. 2024, arXiv
2403.10444), which never keeps fewer tokens on average than judging them one by one. How many more
hangs on ratios of the two models' laws along the whole chain, which no table of accepted ranks
holds: their own rounds are run, where the problem names the method, for the length that suits
chains judged token by token and for a longer one, as each is a proposer of its own.
"""

from __future__ import annotations

import re
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


@dataclass(frozen=True)
class BlockChainOptions(DraftModelOptions):
    """A chain that is judged as a whole.

    Attributes:
        rule: that judges it.
    """

    rule: str = "block"

    @property
    def words(self) -> str:
        """`chain of 6 by draft, judged as a block`."""
        return f"{super().words}, judged as a block"


class DraftModel(Method[DraftModelOptions]):
    """Speculative decoding with a separate draft model that shares the target's tokenizer."""

    name: ClassVar[str] = "draft_model"
    drafter: ClassVar[str] = "model"
    summary: ClassVar[str] = "a smaller model drafts a chain or a static tree of tokens"
    paper: ClassVar[str] = (
        "Leviathan et al. 2022, arXiv 2211.17192; trees: Chen et al. 2024, arXiv 2402.12374; "
        "blocks: Sun et al. 2024, arXiv 2403.10444"
    )
    acceptance: ClassVar[str] = (
        "rank of the accepted child among its choices; of chains judged as a block, their own "
        "rounds, run on the prompts"
    )
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
            rule = options.rule if isinstance(options, BlockChainOptions) else "token"
            return chain_plan(facts, self.name, drafter, len(tree), rule=rule)
        drafted = _tree(options.draft, tree, facts.greedy)
        said = ChainDrafter.of(drafter)
        return said.plan(facts, self.name, drafted, len(tree), rule="recursive")

    def proposer(self, options: DraftModelOptions) -> str | None:
        """The draft model; where it is judged as a block, with its length."""
        if isinstance(options, BlockChainOptions):
            return _block(options.draft, len(options.tree)).name
        return options.draft

    def further_proposers(self, facts: ProblemFacts) -> tuple[str, ...]:
        """Chains judged as a block, above temperature 0, where the problem names the method."""
        if facts.greedy or self.name not in (facts.problem.methods or ()):
            return ()
        return tuple(
            _block(draft, length).name
            for draft in facts.drafts
            for length in _block_lengths(facts, draft)
        )

    def rehearsal(self, facts: ProblemFacts, proposer: str) -> Plan | None:
        """The plan of a chain that is judged as a block."""
        options = _read_block(proposer)
        return None if options is None else self.plan(facts, options)


def _families(facts: ProblemFacts, draft: str) -> Sequence[Family[DraftModelOptions] | Refusal]:
    chains, trees = f"chain by {draft}", f"static tree by {draft}"
    blocks = _block_families(facts, draft)
    if draft not in facts.profiles:
        reason = facts.missing_profile(draft)
        return [Refusal(chains, reason), *blocks, Refusal(trees, reason)]
    lengths = worthwhile_chains(facts, draft, CHAIN_LENGTHS)
    chain_settings = tuple(_options(draft, chain(length)) for length in lengths)
    found: list[Family[DraftModelOptions] | Refusal] = [
        Family(chains, {"length": Domain(lengths, "drafted tokens")}, chain_settings),
        *blocks,
    ]
    if facts.profiles[draft].key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return [*found, Refusal(trees, reason)]
    tree_settings = tuple(_options(draft, tree) for tree in worthwhile_trees(facts, draft))
    if not tree_settings:
        reason = "no second choice of the draft model is ever accepted"
        return [*found, Refusal(trees, reason)]
    return [*found, Family(trees, TREE_DOMAINS, tree_settings, _Trees(facts, draft))]


def _block(draft: str, length: int) -> Proposer:
    return Proposer(draft, way=f"block{length}")


def _read_block(proposer: str) -> BlockChainOptions | None:
    """The chain of a proposer that `_block` named."""
    found = Proposer.read(proposer)
    length = re.fullmatch(r"block([1-9][0-9]*)", found.way)
    if length is None:
        return None
    tree = chain(int(length[1]))
    return BlockChainOptions(found.role, tree.parents, tree.ranks)


def _block_lengths(facts: ProblemFacts, draft: str) -> tuple[int, ...]:
    """The middle one and the longest of those near the best of chains judged token by token.

    The shortest and the longest of all where acceptance is not known yet.
    """
    if draft not in facts.profiles:
        return 2, CHAIN_LENGTHS[-1]  # a device is measured from the shortest to the longest
    near = worthwhile_chains(facts, draft, CHAIN_LENGTHS)
    return tuple(dict.fromkeys(max(2, n) for n in (near[len(near) // 2], near[-1])))


def _block_families(
    facts: ProblemFacts, draft: str
) -> Sequence[Family[DraftModelOptions] | Refusal]:
    """The chains whose rounds have been run; none at temperature 0, where all rules are one."""
    if facts.greedy:
        return []
    name = f"chain by {draft}, judged as a block"
    found = filter(None, map(_read_block, facts.profiles))
    own = sorted((o for o in found if o.draft == draft), key=lambda o: len(o.parents))
    if not own:
        return [Refusal(name, _NOT_RUN)]
    lengths = tuple(len(options.parents) for options in own)
    domains = {"length": Domain(lengths, "drafted tokens, judged as a whole")}
    return [Family(name, domains, tuple(own))]


_NOT_RUN = (
    "their own rounds price them, and were not run: name draft_model in methods, with prompts and "
    "device: measured, or give a ready profile as acceptance.<draft>+block<length>"
)


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
