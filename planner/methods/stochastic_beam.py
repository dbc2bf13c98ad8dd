"""Trees whose paths are drawn together, by a beam in which no path is drawn twice.

Recursive speculative decoding (Jeon et al. 2024, arXiv 2402.14160), its RSD-S: of all paths one
token longer than those of the beam the beam's number is drawn without replacement (stochastic beam
search, Kool et al. 2019, arXiv 1903.06059), so that likely beginnings branch more and unlikely ones
end. Paths that leave the beam stay in the tree, and recursive rejection sampling judges all of it.
RSD-C, whose nodes all have as many children, is `recursive_sampling`. At temperature 0 the beam
keeps the best paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.beams import drawn_beam
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class StochasticBeamOptions(Options):
    """Which model drafts, how many paths, and how deep."""

    reads = "beam of {width} paths, {depth} deep, drawn by {draft}"

    draft: DraftName
    width: Annotated[int, Option("paths of the beam")]
    depth: Annotated[int, Option("levels of the tree")]


class StochasticBeam(ProfiledByRunning[StochasticBeamOptions]):
    """As many chances as the draft model finds worthwhile, where it finds them."""

    summary = "a draft model draws the paths of a beam together, none twice"
    paper = "Jeon et al. 2024, arXiv 2402.14160"
    shape = "dynamic tree"
    family = "stochastic beams"
    shapes = ((2, 2), (2, 4), (3, 3), (4, 3), (4, 5), (6, 4))

    def plan(self, facts: ProblemFacts, options: StochasticBeamOptions) -> Plan:
        """Draw level by level the best of perturbed paths, verify, accept."""
        width, depth = options.width, options.depth
        drafted = drawn_beam(facts, options.draft, width, depth)
        return draft_and_verify(facts, self, drafted, width * depth, models=(options.draft,))


METHOD = StochasticBeam()
