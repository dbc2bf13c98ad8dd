"""Drafts from the target's own likeliest tokens, as it last judged them after each token.

Token recycling (Luo et al. 2024, arXiv 2408.08696): every judged row overwrites the row of its
token in a matrix of successors; a tree of a fixed shape is filled by following it. The paper's
template of 80 nodes gives way to the trees that the measured acceptance by rank makes best. Drafts
are certain proposals, judged by the recursive rule at a temperature above 0; the matrix is shared
and never emptied (the paper's hot start), so that draws then depend on other requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Refusal
from specplan.planner.templates.plan_text import judge, number_list, single_round_plan
from specplan.planner.templates.source_drafts import STATE, why_not
from specplan.planner.templates.static_trees import TREE_DOMAINS, TreeOptions
from specplan.planner.trees import StaticTree, chain, grow_levels
from specplan.planner.trees.candidates import worthwhile_trees

LENGTHS = (1, 2, 3, 4, 6, 8)
SUCCESSORS = DRAFT_SOURCES["adjacency"]


@dataclass(frozen=True)
class RecyclingOptions(TreeOptions):
    """What shape is filled from the matrix."""


class TokenRecycling(Method[RecyclingOptions]):
    """Costs no draft model and hardly any memory; learns while it decodes."""

    name: ClassVar[str] = "token_recycling"
    shape: ClassVar[str] = "chain"
    summary: ClassVar[str] = "a tree of the tokens that the target last ranked after each token"
    paper: ClassVar[str] = "Luo et al. 2024, arXiv 2408.08696"
    acceptance: ClassVar[str] = (
        "rank of the next token in the row of the last; rows along the text only, a run "
        "learns those of rejected tokens too"
    )
    memory: ClassVar[str] = "8 tokens of 4 bytes for each of the vocabulary, for all requests"
    sources: ClassVar[tuple[str, ...]] = ("adjacency",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(SUCCESSORS.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[RecyclingOptions] | Refusal]:
        """Chains of 1 to 8 tokens, and trees by nodes and depth."""
        chains, trees = "chain of recycled tokens", "tree of recycled tokens"
        reason = why_not(facts, self, SUCCESSORS)
        if reason is not None:
            return [Refusal(chains, reason), Refusal(trees, reason)]
        found: list[Family[RecyclingOptions] | Refusal] = [
            Family(
                chains,
                {"length": Domain(LENGTHS, "drafted tokens")},
                tuple(_options(chain(length)) for length in LENGTHS),
            )
        ]
        if not facts.profiles[Source(SUCCESSORS.word)].evidence.ranked:
            return [*found, Refusal(trees, "its acceptance profile knows no second choices")]
        width = SUCCESSORS.integer("width")
        shapes = [
            tree
            for tree in worthwhile_trees(facts, Source(SUCCESSORS.word))
            if max(tree.ranks) < width
        ]
        if not shapes:
            return [*found, Refusal(trees, "no second choice is ever accepted")]
        return [*found, Family(trees, TREE_DOMAINS, tuple(map(_options, shapes)))]

    def plan(self, facts: ProblemFacts, options: RecyclingOptions) -> Plan:
        """Fill the shape level by level, verify, accept, overwrite rows."""
        tree = options.tree
        rule = None if facts.greedy else "recursive"
        drafted = "\n".join(["%t0 = root", *_filled(tree)])
        body = f"{drafted}\n{judge('%c', len(tree), rule=rule)}\nupdate @{STATE} %c logits=%l"
        return single_round_plan(
            facts,
            self.name,
            (),
            body,
            states=(SUCCESSORS.declaration(STATE),),
            reproducible=facts.greedy,
        )

    def drafter(self, facts: ProblemFacts, options: RecyclingOptions) -> Drafter | None:
        """The matrix of successors."""
        return Source(SUCCESSORS.word)


def _options(tree: StaticTree) -> RecyclingOptions:
    return RecyclingOptions(SUCCESSORS.word, tree.parents, tree.ranks)


def _filled(tree: StaticTree) -> Iterator[str]:
    """The tree as `%c`, one lookup per level; a chain takes one in all."""
    if tree.is_chain:
        yield f"%c = lookup @{STATE} %t0 at=%t0 length={len(tree)}"
        return
    levels, newest = grow_levels(tree), 1
    for index, level in enumerate(levels):
        above = nodes = f"%t{index}"
        if index:
            whole = level.expand == tuple(range(newest))
            only = "" if whole else f" nodes={print_atom(level.expand)}"
            nodes = f"%f{index}"
            yield f"{nodes} = pick {above} of=newest{only}"
        grown = "%c" if index == len(levels) - 1 else f"%t{index + 1}"
        children = number_list(level.children)
        yield f"{grown} = lookup @{STATE} {above} at={nodes} children={children}"
        newest = level.nodes


METHOD = TokenRecycling()
