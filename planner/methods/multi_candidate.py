"""Trees in which every node gets several children, drawn independently of one another.

Multi-candidate speculative decoding (Yang et al. 2024, arXiv 2401.06706), its sampling with
replacement: at every level each node gets so many draws of the draft model's law, and recursive
rejection judges one after the other. Equal draws go on together: what was drafted below any of them
hangs below the first. Draws without replacement, the paper's other way, are `recursive_sampling`;
at temperature 0 children are the best ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import tree_text
from specplan.planner.trees import expansion_tree

SHAPES = ((3,), (2, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (4, 2, 1), (4, 2, 2, 1))
"""Draws below every node of the root's level, of the next one, and so on."""


@dataclass(frozen=True)
class MultiCandidateOptions(Options):
    """Which model drafts, and how wide.

    Attributes:
        draft: name of the draft model.
        branching: draws below every node of the root's level, of the next one, and so on.
    """

    draft: str
    branching: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return len(expansion_tree(self.branching))

    @property
    def words(self) -> str:
        """`3-1-1 independent draws by draft`."""
        return f"{'-'.join(map(str, self.branching))} independent draws by {self.draft}"


class MultiCandidate(ProfiledByRunning[MultiCandidateOptions]):
    """Several chances at every level, none of which depends on the others."""

    name: ClassVar[str] = "multi_candidate"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "a draft model grows a tree of independent draws; equal ones merge"
    paper: ClassVar[str] = "Yang et al. 2024, arXiv 2401.06706"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "independent draws"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "branching": "draws below every node, level by level",
    }

    def settings(self, models: Sequence[str]) -> Iterator[MultiCandidateOptions]:
        """A few shapes for every draft model."""
        return (MultiCandidateOptions(draft, shape) for draft, shape in product(models, SHAPES))

    def plan(self, facts: ProblemFacts, options: MultiCandidateOptions) -> Plan:
        """Draw level by level, merge, verify, accept."""
        draft, cache = options.draft, cache_of(options.draft)

        def forward(level: int, nodes: str) -> str:
            return f"forward {draft} {nodes} cache={cache}" + ("" if level else " pending=2")

        shape = expansion_tree(options.branching)
        lines, tree = [tree_text(shape, forward, drawn=not facts.greedy, distinct=False)], "%c"
        if not facts.greedy and len(options.branching) > 1:
            lines.append("%m = graft %c same=merge")
            tree = "%m"
        lines.append(judge(tree, options.nodes, rule=None if facts.greedy else "recursive"))
        lines.append(f"commit {cache} %e")
        return single_round_plan(facts, self.name, (draft,), "\n".join(lines))


METHOD = MultiCandidate()
