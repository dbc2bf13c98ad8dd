"""A smaller model drafts, as a chain or as a static tree, and the target verifies.

Chains follow Leviathan et al. 2022 (arXiv 2211.17192); trees follow Sequoia (arXiv 2402.12374):
the shape with the most expected tokens under the measured acceptance by depth and rank, children
drawn without replacement, accepted by the recursive rule. At temperature 0 children are the best
ranks and the rule is greedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.plan_text import cache_of, judge, number_list, single_round_plan
from specplan.planner.trees import (
    GrowLevel,
    StaticTree,
    chain,
    grow_levels,
)
from specplan.planner.worthwhile_trees import DEPTH, NODES, worthwhile_trees

CHAIN_LENGTHS = tuple(range(1, 17))


@dataclass(frozen=True)
class DraftModelOptions(Options):
    """Which model drafts, and what shape (see `specplan.planner.trees` for the conventions).

    Attributes:
        draft: name of the draft model.
        parents: parent of each drafted node, -1 for children of the root.
        ranks: 0-based order of each node among its siblings.
    """

    draft: str
    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    @property
    def tree(self) -> StaticTree:
        """The shape."""
        return StaticTree(self.parents, self.ranks)

    @property
    def words(self) -> str:
        """`chain of 4 by draft`, `tree of 12, depth 5, by draft`."""
        tree = self.tree
        if tree.is_chain:
            return f"chain of {len(tree)} by {self.draft}"
        return f"tree of {len(tree)}, depth {tree.depth}, by {self.draft}"

    def as_dict(self) -> dict[str, Any]:
        """The options, and the number of nodes and levels for the reader."""
        return {**super().as_dict(), "nodes": len(self.tree), "depth": self.tree.depth}


class DraftModel(Method[DraftModelOptions]):
    """Speculative decoding with a separate draft model that shares the target's tokenizer."""

    name: ClassVar[str] = "draft_model"
    summary: ClassVar[str] = "a smaller model drafts a chain or a static tree of tokens"
    needs_draft_model: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[DraftModelOptions] | Refusal]:
        """Per draft model: chains of 1 to 16 tokens, and trees by nodes and depth."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        return [family for draft in facts.drafts for family in _families(facts, draft)]

    def plan(self, facts: ProblemFacts, options: DraftModelOptions) -> Plan:
        """The draft model grows the shape, the target judges it."""
        tree = options.tree
        if tree.is_chain:
            drafted, rule = _chain(options.draft, len(tree), facts.greedy), "token"
        else:
            drafted, rule = _tree(options.draft, tree, facts.greedy), "recursive"
        body = (
            f"{drafted}\n{judge('%c', len(tree), rule=None if facts.greedy else rule)}\n"
            f"commit {cache_of(options.draft)} %e"
        )
        return single_round_plan(facts, self.name, (options.draft,), body)

    def proposer(self, options: DraftModelOptions) -> str | None:
        """The draft model."""
        return options.draft


def _families(facts: ProblemFacts, draft: str) -> Sequence[Family[DraftModelOptions] | Refusal]:
    chains, trees = f"chain by {draft}", f"static tree by {draft}"
    if draft not in facts.profiles:
        reason = facts.missing_profile(draft)
        return [Refusal(chains, reason), Refusal(trees, reason)]
    chain_settings = tuple(_options(draft, chain(length)) for length in CHAIN_LENGTHS)
    found: list[Family[DraftModelOptions] | Refusal] = [
        Family(chains, {"length": Domain(CHAIN_LENGTHS, "drafted tokens")}, chain_settings)
    ]
    if facts.profiles[draft].key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return [*found, Refusal(trees, reason)]
    tree_settings = tuple(_options(draft, tree) for tree in worthwhile_trees(facts, draft))
    if not tree_settings:
        reason = "no second choice of the draft model is ever accepted"
        return [*found, Refusal(trees, reason)]
    domains = {
        "nodes": Domain(tuple(range(2, max(NODES) + 1)), "drafted nodes"),
        "depth": Domain(tuple(range(1, DEPTH + 1)), "levels"),
    }
    return [*found, Family(trees, domains, tree_settings)]


def _options(draft: str, tree: StaticTree) -> DraftModelOptions:
    return DraftModelOptions(draft, tree.parents, tree.ranks)


def _chain(draft: str, length: int, greedy: bool) -> str:
    """A chain of `length` tokens as `%c`, grown one token a trip."""
    draw = "" if greedy else "\n    %u = uniform 1 stream=draft"
    how = "" if greedy else " how=draw by=%u"
    return f"""%t0 = root
%c = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {draft} %f cache={cache_of(draft)} pending=2{draw}
    %n = grow %t at=%f rows=%q{how}
    yield %n
}}"""


def _tree(draft: str, tree: StaticTree, greedy: bool) -> str:
    """The tree as `%c`: one forward and one `grow` per level."""
    return "\n".join(["%t0 = root", *_levels(draft, grow_levels(tree), greedy)])


def _levels(draft: str, levels: Sequence[GrowLevel], greedy: bool) -> Iterator[str]:
    cache, drawn, newest = cache_of(draft), 0, 1
    for index, level in enumerate(levels):
        above = f"%t{index}"
        tree = "%c" if index == len(levels) - 1 else f"%t{index + 1}"
        nodes, pending = (above, " pending=2") if index == 0 else (f"%f{index}", "")
        if index:
            whole = level.expand == tuple(range(newest))
            only = "" if whole else f" nodes={print_atom(level.expand)}"
            yield f"{nodes} = pick {above} of=newest{only}"
        yield f"%q{index} = forward {draft} {nodes} cache={cache}{pending}"
        how = ""
        if not greedy:
            offset = f" offset={drawn}" if drawn else ""
            yield f"%u{index} = uniform {level.nodes} stream=draft{offset}"
            how = f" how=draw_distinct by=%u{index}"
        children = number_list(level.children)
        yield f"{tree} = grow {above} at={nodes} rows=%q{index} children={children}{how}"
        drawn, newest = drawn + level.nodes, level.nodes


METHOD = DraftModel()
