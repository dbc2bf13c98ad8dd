"""Drafts from the target's own likeliest tokens, as it last judged them after each token.

Token recycling (Luo et al. 2024, arXiv 2408.08696): the target's best tokens after each judged
token overwrite that token's row in a matrix of successors; a tree of a fixed shape is filled by
following it. Drafts are certain proposals, judged by the recursive rule at a temperature above 0;
the matrix is shared and never emptied (the paper's hot start), so that draws then depend on other
requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Option, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.plan_text import draft_and_verify, number_list
from specplan.planner.templates.source_drafts import STATE, SourceMethod
from specplan.planner.templates.static_trees import TreeOptions, levels_text
from specplan.planner.trees import GrowLevel, chain
from specplan.planner.trees.candidates import worthwhile_trees

LENGTHS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class RecyclingOptions(TreeOptions):
    """What shape is filled from the matrix."""

    draft: Annotated[str, Option("the matrix")]


class TokenRecycling(SourceMethod[RecyclingOptions]):
    """Costs no draft model and hardly any memory; learns while it decodes."""

    summary = "a tree of the tokens that the target last ranked after each token"
    paper = "Luo et al. 2024, arXiv 2408.08696"
    differs = "Shapes follow the measured acceptance by rank, not the paper's template of 80 nodes."
    acceptance = (
        "rank of the next token in the row of the last; rows along the text only, a run "
        "learns those of rejected tokens too"
    )
    memory = "8 tokens of 4 bytes for each of the vocabulary, for all requests"
    source = DRAFT_SOURCES["adjacency"]

    def choices(self, facts: ProblemFacts) -> Sequence[Family[RecyclingOptions] | Refusal]:
        """Chains of 1 to 8 tokens, and trees by nodes and depth."""
        chains, trees = "chain of recycled tokens", "tree of recycled tokens"
        reason, matrix = self.missing_source(facts), self.source.word
        if reason is not None:
            return [Refusal(chains, reason), Refusal(trees, reason)]
        family = Family.of(chains, (RecyclingOptions.of(matrix, chain(n)) for n in LENGTHS))
        if not facts.profiles[Source(matrix)].evidence.ranked:
            words = "its acceptance profile knows no second choices"
            return [family, Refusal(trees, Reason(words, Cause.FIRST_CHOICES))]
        width = self.source.integer("width")
        settings = [
            RecyclingOptions.of(matrix, tree)
            for tree in worthwhile_trees(facts, Source(matrix))
            if max(tree.ranks) < width
        ]
        if not settings:
            return [family, Refusal(trees, "no second choice is ever accepted")]
        return [family, Family.of(trees, settings)]

    def plan(self, facts: ProblemFacts, options: RecyclingOptions) -> Plan:
        """Fill the shape level by level, verify, accept, overwrite rows."""
        tree = options.tree
        if tree.is_chain:
            drafted = f"%t0 = root\n%c = lookup @{STATE} %t0 at=%t0 length={len(tree)}"
        else:
            drafted = levels_text(tree, _look_up)
        learn, states = f"update @{STATE} %c logits=%l", (self.source.declaration(STATE),)
        return draft_and_verify(facts, self, drafted, len(tree), after=learn, states=states)


def _look_up(_: int, grown: str, above: str, nodes: str, level: GrowLevel) -> Iterator[str]:
    children = number_list(level.children)
    yield f"{grown} = lookup @{STATE} {above} at={nodes} children={children}"


METHOD = TokenRecycling()
