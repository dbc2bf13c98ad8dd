"""A draft model or head grows a tree by a beam until the accepted path has probably left the beam.

Dynamic Depth Decoding (Brown et al. 2024, arXiv 2409.00142) ends EAGLE-2's growth early: after a
layer the probabilities of the beam's nodes, each the drafter's own multiplied along its path, are
summed. The sum is how probable it is that the accepted path continues from the beam; where it is
below a threshold, no other layer is drafted. Then the most probable nodes of the whole draft are
verified, as in `dynamic_tree`, whose depth is the same everywhere. Children are best ranks at every
temperature, certain proposals.

The paper looks at the sum after some layers only, since looking stalls a device; here every layer
is looked at, of heads from the second on, which is priced. The thresholds are fixed, and the search
chooses by the seconds and tokens of each one's rounds; `specplan.planner.trees.mass_threshold`
derives one from costs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import heads_by_token
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import (
    draft_and_verify,
    draft_passes,
    features_of,
    head_passes,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LAYERS = 8


@dataclass(frozen=True)
class DynamicDepthOptions(Options):
    """Which model or head drafts, and when it stops."""

    reads = "tree of {nodes}, beam {beam}, by {draft}, until the beam is below {least_mass}"

    draft: DraftName
    nodes: Annotated[int, Option("verified nodes, the most probable ones")]
    beam: Annotated[int, Option("nodes of a layer that get children, and children of each")]
    least_mass: Annotated[
        float, Option("probability of the beam below which no other layer is drafted")
    ]
    layers: Annotated[int, Option("layers at most, one pass of the drafter each")] = LAYERS


class DynamicDepth(ProfiledByRunning[DynamicDepthOptions]):
    """Pays where the accepted depth varies and layers take long."""

    summary = "a model or head grows a tree while its beam is probable, the best is verified"
    paper = "Brown et al. 2024, arXiv 2409.00142"
    differs = "The beam is checked after every layer, of heads from the second on."
    shape = "dynamic tree"
    family = "trees as deep as the beam is probable"
    shapes = tuple((*size, mass) for size in ((8, 3), (16, 4)) for mass in (0.2, 0.4, 0.6))

    def run_settings(self, facts: ProblemFacts) -> Iterator[DynamicDepthOptions]:
        """Those of draft models, and of heads that read one token at a time."""
        yield from super().run_settings(facts)
        yield from self.settings(heads_by_token(facts.drafters))

    def plan(self, facts: ProblemFacts, options: DynamicDepthOptions) -> Plan:
        """Grow layers until the beam is improbable, prune to the best nodes, verify, accept."""
        draft, beam, nodes = options.draft, options.beam, options.nodes
        head, longest, begun = facts.drafters.get(draft), options.layers, "%t0"
        first, later = (
            draft_passes(draft) if head is None else head_passes(facts, draft, longest + 1)
        )
        drafted = "%t0 = root"
        if head is None:  # its passes differ only in the text that the first one catches up with
            later = first
        else:
            longest, begun = longest - 1, "%t1"
            drafted += f"""
%q0 = {first.over("%t0")}
%t1 = grow %t0 at=%t0 logits=%q0 children={beam}"""
        drafted += f"""
%pool = repeat {longest} (%t = {begun}) {{
    %f = pick %t of=newest best={beam}
    %q = {later.over("%f")}
    %n = grow %t at=%f logits=%q children={beam}
    %g = pick %n of=newest best={beam}
    %m = measure %g value(best={beam})
    %stop = compute "m < {options.least_mass}" m=%m
    yield %n until=%stop
}}
%b = pick %pool of=all best={nodes}
%c = prune %pool to=%b"""
        return draft_and_verify(
            facts, self, drafted, nodes, models=(draft,), features=features_of(head),
            recurrent=head is not None,
        )  # fmt: skip


METHOD = DynamicDepth()
