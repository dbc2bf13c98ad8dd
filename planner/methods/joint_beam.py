"""Paths of a beam, of which the longest stands whose joint probability is near the draft's.

Multi-token joint speculative decoding (Qin et al. 2024, arXiv 2407.09722): a draft model samples a
beam, which follows its joint distribution of several tokens, and the target judges whole paths by
the ratio of joint probabilities (rule `joint`), so that a token that is unlikely by itself stands
where what follows makes up for it. Lossy: texts are to be likelier as a whole.
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
class JointBeamOptions(Options):
    """Which model drafts, how many paths, how deep, and how strictly they are judged."""

    reads = "beam of {width} paths, {depth} deep, by {draft}, share {threshold}"

    draft: DraftName
    width: Annotated[int, Option("paths of the beam")]
    depth: Annotated[int, Option("levels of the tree")]
    threshold: Annotated[float, Option("least share of the draft's joint probability")]


class JointBeam(ProfiledByRunning[JointBeamOptions]):
    """Longer accepted paths than token by token; changes the output distribution."""

    summary = "a draft model samples a beam, judged by the joint probability of whole paths"
    paper = "Qin et al. 2024, arXiv 2407.09722"
    differs = (
        "The beam is drawn without replacement, and the target's best token follows the path, "
        "where the paper draws from what the draft left."
    )
    law = "free"
    shape = "dynamic tree"
    family = "joint beams"
    shapes = ((2, 3, 0.3), (4, 4, 0.3), (4, 4, 0.7))

    def plan(self, facts: ProblemFacts, options: JointBeamOptions) -> Plan:
        """Draw level by level the best of perturbed paths, verify, accept whole paths."""
        width, depth = options.width, options.depth
        drafted = drawn_beam(facts, options.draft, width, depth)
        rule = f"joint(threshold={options.threshold})"
        models = (options.draft,)
        return draft_and_verify(facts, self, drafted, width * depth, models=models, rule=rule)


METHOD = JointBeam()
