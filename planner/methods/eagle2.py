"""A head grows a tree where it is likeliest to be right, and the best of it is verified.

EAGLE-2 (Li et al. 2024, arXiv 2406.16858, section 4), with an EAGLE-1 or EAGLE-3 head: the root
gets the head's best `beam` children; level after level, each of the `beam` most probable new nodes
gets its own; of all these the most probable `nodes` are verified. Probability is the head's own,
multiplied along the path. EAGLE-2's code grows 60 nodes, ten at a level, seven levels deep at most.
FSPAD (Gui et al. 2024, arXiv 2408.15562) drafts so with a head of another body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import heads_by_token
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.beams import likeliest_tree
from specplan.planner.templates.plan_text import draft_and_verify, features_of, head_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class Eagle2Options(Options):
    """Which head drafts, and how much."""

    reads = "dynamic tree of {nodes}, beam {beam}, depth {depth}, by {draft}"

    draft: DraftName
    beam: Annotated[int, Option("children of a node that gets any, and nodes of a level that do")]
    depth: Annotated[int, Option("levels, one pass of the head each")]
    nodes: Annotated[int, Option("verified nodes, the most probable ones")]


class Eagle2(ProfiledByRunning[Eagle2Options]):
    """More accepted tokens than a fixed tree of as many nodes: the shape follows the context."""

    summary = "a head grows a tree by a beam, its most probable nodes are verified"
    paper = "Li et al. 2024, arXiv 2406.16858; FSPAD: Gui et al. 2024, arXiv 2408.15562"
    engine_drafter = "head"
    shape = "dynamic tree"
    family = "dynamic trees by a head"
    shapes = ((2, 3, 6), (4, 3, 12), (4, 5, 16), (6, 5, 32), (10, 6, 59))

    def run_settings(self, facts: ProblemFacts) -> Iterator[Eagle2Options]:
        """Every shape with every head that reads one token at a time."""
        yield from self.settings(heads_by_token(facts.drafters))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """There are no heads."""
        return None if heads_by_token(facts.drafters) else "models.drafts names no EAGLE head"

    def plan(self, facts: ProblemFacts, options: Eagle2Options) -> Plan:
        """The head grows the pool and the best of it is judged."""
        head, nodes = options.draft, options.nodes
        passes = head_passes(facts, head, options.depth + 1)
        tree = likeliest_tree(passes, options.beam, options.depth, nodes)
        layers = features_of(facts.drafters[head])
        return draft_and_verify(
            facts, self, tree, nodes, models=(head,), features=layers, recurrent=True
        )


METHOD = Eagle2()
