"""Trees of hundreds of nodes, the most probable ones of a wide beam, which the target draws along.

SpecExec (Svirschevski et al. 2024, arXiv 2406.02532): where a pass of the target takes as long for
hundreds of tokens as for one, as with weights that are read from host memory or disk, the draft is
the tree of the paths that the draft model finds most probable. The target draws one token after
each node, and the walk goes on while a child holds it (rule `naive`), so that its distribution is
kept whatever the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import layers_text


@dataclass(frozen=True)
class LargeTreeOptions(Options):
    """Which model drafts, and how much of it is verified."""

    reads = "the best {nodes} of {layers} layers, beam {beam}, branch {branch}, by {draft}"

    draft: DraftName
    nodes: Annotated[int, Option("verified nodes, the most probable ones")]
    beam: Annotated[int, Option("nodes of a layer that get children")]
    branch: Annotated[int, Option("children of each")]
    layers: Annotated[int, Option("layers, one pass of the draft model each")]


class LargeTree(ProfiledByRunning[LargeTreeOptions]):
    """Pays where verifying hundreds of tokens takes little longer than one."""

    summary = "a draft model grows hundreds of nodes, and the target draws its way along them"
    paper = "Svirschevski et al. 2024, arXiv 2406.02532"
    differs = "Every layer is a pass over a beam, where the paper expands the best nodes of all."
    shape = "dynamic tree"
    family = "large trees"
    shapes = ((32, 8, 4, 4), (64, 16, 4, 6), (128, 16, 4, 8), (256, 32, 4, 10), (512, 32, 4, 14))

    def plan(self, facts: ProblemFacts, options: LargeTreeOptions) -> Plan:
        """Grow layer after layer, prune to the budget, verify, walk."""
        passes, pick = draft_passes(options.draft), f"best={options.beam}"
        tree = layers_text(
            options.layers, passes, first=options.branch, later=options.branch, pick=pick,
            result="%pool",
        )  # fmt: skip
        drafted = f"""{tree}
%b = pick %pool of=all best={options.nodes}
%c = prune %pool to=%b"""
        models = (options.draft,)
        return draft_and_verify(facts, self, drafted, options.nodes, models=models, rule="naive")


METHOD = LargeTree()
