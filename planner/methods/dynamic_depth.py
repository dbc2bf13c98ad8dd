"""A draft model grows a tree by a beam until the accepted path has probably left the beam.

Dynamic Depth Decoding (Brown et al. 2024, arXiv 2409.00142) ends EAGLE-2's growth early: after a
layer the probabilities of the beam's nodes, each the draft model's own multiplied along its path,
are summed. The sum is how probable it is that the accepted path goes on from the beam; where it is
below a threshold, no other layer is drafted. Then the most probable nodes of all that were drafted
are verified, as in `dynamic_tree`, whose depth is the same everywhere. Children are best ranks at
every temperature, point laws.

The paper has an EAGLE head draft, and looks at the sum after some layers only, since looking stalls
a device; here a draft model drafts, and every layer is looked at, which is priced. The thresholds
are fixed, and the search chooses by what the rounds of each take and emit; what one should be by
costs alone, `specplan.planner.trees.mass_threshold` says.
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

SHAPES = ((8, 3), (16, 4))
"""Verified nodes, and nodes of a layer that get children."""
MASSES = (0.2, 0.4, 0.6)
LAYERS = 8


@dataclass(frozen=True)
class DynamicDepthOptions(Options):
    """Which model drafts, and when it stops.

    Attributes:
        draft: name of the draft model.
        nodes: verified nodes.
        beam: nodes of a layer that get children, and children of each.
        least_mass: probability of the beam below which no other layer is drafted.
        layers: at most.
    """

    draft: str
    nodes: int
    beam: int
    least_mass: float
    layers: int = LAYERS

    @property
    def words(self) -> str:
        """`tree of 8, beam 3, by draft, until the beam is below 0.4`."""
        size = f"tree of {self.nodes}, beam {self.beam}"
        return f"{size}, by {self.draft}, until the beam is below {self.least_mass}"


class DynamicDepth(ProfiledByRunning[DynamicDepthOptions]):
    """Pays where how far drafts hold varies, and layers take long."""

    name: ClassVar[str] = "dynamic_depth"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = (
        "a draft model grows a tree while its beam is probable, the best of it is verified"
    )
    paper: ClassVar[str] = "Brown et al. 2024, arXiv 2409.00142"
    by_name: ClassVar[bool] = True
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "trees as deep as the beam is probable"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "nodes": "verified nodes, the most probable ones",
        "beam": "nodes of a layer that get children, and children of each",
        "least_mass": "probability of the beam below which no other layer is drafted",
        "layers": "layers at most, one pass of the draft model each",
    }

    def settings(self, models: Sequence[str]) -> Iterator[DynamicDepthOptions]:
        """Every size with every threshold by every draft model."""
        return (
            DynamicDepthOptions(draft, *shape, mass)
            for draft, shape, mass in product(models, SHAPES, MASSES)
        )

    def plan(self, facts: ProblemFacts, options: DynamicDepthOptions) -> Plan:
        """Grow layers until the beam is improbable, keep the best nodes, verify, accept."""
        draft, cache = options.draft, cache_of(options.draft)
        best, beam = options.nodes, options.beam
        body = f"""%t0 = root
%pool = repeat {options.layers} (%t = %t0) {{
    %f = pick %t of=newest best={beam}
    %q = forward {draft} %f cache={cache} pending=2
    %n = grow %t at=%f logits=%q children={beam}
    %g = pick %n of=newest best={beam}
    %m = measure %g value(best={beam})
    %stop = compute "m < {options.least_mass}" m=%m
    yield %n until=%stop
}}
%b = pick %pool of=all best={best}
%c = prune %pool to=%b
{judge("%c", best, rule=None if facts.greedy else "recursive")}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body)


METHOD = DynamicDepth()
