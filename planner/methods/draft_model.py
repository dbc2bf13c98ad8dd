"""A smaller model drafts, as a chain or as a static tree, and the target verifies.

Chains follow Leviathan et al. 2022 (arXiv 2211.17192); trees follow Sequoia (arXiv 2402.12374):
the shape with the most expected tokens under the measured acceptance by depth and rank, children
drawn without replacement, accepted by the recursive rule. At temperature 0 children are the best
ranks and the rule is greedy.

Above temperature 0 chains may be judged as a whole (block verification, Sun et al. 2024, arXiv
2403.10444), which never keeps fewer tokens on average than judging them one by one. How many more
hangs on ratios of the two models' laws along the whole chain, which no table of accepted ranks
holds: their own rounds are run, where the problem names the method, for the length that suits
chains judged token by token and for a longer one, as each is a plan of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Refusal, own_rounds
from specplan.planner.templates.chains import ChainDrafter, chain_plan
from specplan.planner.templates.plan_text import cache_of
from specplan.planner.templates.static_trees import TREE_DOMAINS, TreeOptions, tree_text
from specplan.planner.trees import StaticTree, TreeSearch, chain
from specplan.planner.trees.candidates import (
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
    engine_drafter: ClassVar[str] = "model"
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
        drafter, tree = Model(options.draft), options.tree
        if tree.is_chain:
            rule = options.rule if isinstance(options, BlockChainOptions) else "token"
            return chain_plan(facts, self.name, drafter, len(tree), rule=rule)
        drafted = _tree(options.draft, tree, facts.greedy)
        said = ChainDrafter.of(drafter)
        return said.plan(facts, self.name, drafted, len(tree), rule="recursive")

    def drafter(self, facts: ProblemFacts, options: DraftModelOptions) -> Drafter | None:
        """The draft model; where it is judged as a block, the plan's own rounds."""
        if isinstance(options, BlockChainOptions):
            return own_rounds(facts, self, options)
        return Model(options.draft)

    def later_settings(self, facts: ProblemFacts) -> Iterator[DraftModelOptions]:
        """Chains judged as a block, above temperature 0, where the problem names the method."""
        if not facts.greedy and self.name in (facts.problem.methods or ()):
            for draft in facts.drafts:
                yield from (_block(draft, length) for length in _block_lengths(facts, draft))


def _families(facts: ProblemFacts, draft: str) -> Sequence[Family[DraftModelOptions] | Refusal]:
    chains, trees = f"chain by {draft}", f"static tree by {draft}"
    blocks = _block_families(facts, draft)
    drafter = Model(draft)
    if drafter not in facts.profiles:
        reason = facts.missing_profile(drafter)
        return [Refusal(chains, reason), *blocks, Refusal(trees, reason)]
    lengths = worthwhile_chains(facts, drafter, CHAIN_LENGTHS)
    chain_settings = tuple(_options(draft, chain(length)) for length in lengths)
    found: list[Family[DraftModelOptions] | Refusal] = [
        Family(chains, {"length": Domain(lengths, "drafted tokens")}, chain_settings),
        *blocks,
    ]
    if facts.profiles[drafter].key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return [*found, Refusal(trees, reason)]
    tree_settings = tuple(_options(draft, tree) for tree in worthwhile_trees(facts, drafter))
    if not tree_settings:
        return [*found, Refusal(trees, facts.no_tree(drafter))]
    return [*found, Family(trees, TREE_DOMAINS, tree_settings, _Trees(facts, draft))]


def _block(draft: str, length: int) -> BlockChainOptions:
    tree = chain(length)
    return BlockChainOptions(draft, tree.parents, tree.ranks)


def _block_lengths(facts: ProblemFacts, draft: str) -> tuple[int, ...]:
    """The middle one and the longest of those near the best of chains judged token by token.

    The shortest and the longest of all where acceptance is not known yet.
    """
    drafter = Model(draft)
    if drafter not in facts.profiles:
        return 2, CHAIN_LENGTHS[-1]  # a device is measured from the shortest to the longest
    near = worthwhile_chains(facts, drafter, CHAIN_LENGTHS)
    return tuple(dict.fromkeys(max(2, n) for n in (near[len(near) // 2], near[-1])))


def _block_families(
    facts: ProblemFacts, draft: str
) -> Sequence[Family[DraftModelOptions] | Refusal]:
    """The chains whose rounds have been run; none at temperature 0, where all rules are one."""
    if facts.greedy:
        return []
    name = f"chain by {draft}, judged as a block"
    every = (_block(draft, length) for length in CHAIN_LENGTHS[1:])
    own = [one for one in every if own_rounds(facts, METHOD, one) in facts.profiles]
    if not own:
        return [Refusal(name, _NOT_RUN)]
    lengths = tuple(len(options.parents) for options in own)
    domains = {"length": Domain(lengths, "drafted tokens, judged as a whole")}
    return [Family(name, domains, tuple(own))]


_NOT_RUN = (
    "their own rounds price them, and were not run: name draft_model in methods, with prompts and "
    "device: measured, or give ready profiles of them"
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
        return tree_objective(self.facts, Model(self.draft)).exact


def _options(draft: str, tree: StaticTree) -> DraftModelOptions:
    return DraftModelOptions(draft, tree.parents, tree.ranks)


def _tree(draft: str, tree: StaticTree, greedy: bool) -> str:
    """The tree as `%c`; the first level catches up the text."""

    def forward(level: int, nodes: str) -> str:
        pending = "" if level else " pending=2"
        return f"forward {draft} {nodes} cache={cache_of(draft)}{pending}"

    return tree_text(tree, forward, drawn=not greedy)


METHOD = DraftModel()
