"""Trees in which every node gets several children, drawn independently of one another.

Multi-candidate speculative decoding (Yang et al. 2024, arXiv 2401.06706), its sampling with
replacement: at every level each node gets several draws from the draft model's distribution, and
recursive rejection judges one after the other. Equal draws continue together: the children of any
of them become children of the first. At temperature 0 children are the best ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import tree_text
from specplan.planner.trees import expansion_tree

SHAPES = ((3,), (2, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (4, 2, 1), (4, 2, 2, 1))


@dataclass(frozen=True)
class MultiCandidateOptions(Options):
    """Which model drafts, and how wide."""

    reads = "{branching} independent draws by {draft}"

    draft: DraftName
    branching: Annotated[tuple[int, ...], Option("draws below every node, level by level", SHAPES)]

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return len(expansion_tree(self.branching))


class MultiCandidate(ProfiledByRunning[MultiCandidateOptions]):
    """Several chances at every level, none of which depends on the others."""

    summary = "a draft model grows a tree of independent draws; equal ones merge"
    paper = "Yang et al. 2024, arXiv 2401.06706"
    differs = "Draws are with replacement only; `recursive_sampling` draws without."
    shape = "static tree"
    family = "independent draws"

    def plan(self, facts: ProblemFacts, options: MultiCandidateOptions) -> Plan:
        """Draw level by level, merge, verify, accept."""
        draft, shape, drawn = options.draft, expansion_tree(options.branching), not facts.greedy
        drafted, tree = tree_text(shape, draft_passes(draft), drawn=drawn, distinct=False), "%c"
        if drawn and len(options.branching) > 1:
            drafted, tree = f"{drafted}\n%m = graft %c same=merge", "%m"
        return draft_and_verify(facts, self, drafted, options.nodes, models=(draft,), tree=tree)


METHOD = MultiCandidate()
