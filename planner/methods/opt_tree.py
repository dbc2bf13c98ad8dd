"""A draft model grows a tree layer by layer while one more layer is worth its pass.

OPT-Tree (Wang et al. 2024, arXiv 2406.17276, section 3): with the draft model's probabilities,
multiplied along paths, for acceptance, the n most probable nodes of the whole draft are the tree of
n nodes with the most accepted tokens expected. Each pass drafts below the most probable nodes of
the newest layer; drafting ends where the expected accepted tokens of the best n grow by no more
than a threshold, and these n are verified. Children are best ranks at every temperature, certain
proposals.

The paper's threshold lies between a draft pass over a pass of the target and 1; what pays is that
ratio times the speedup (one more layer must bring more tokens than its pass takes time for). That
threshold is derived from the device's times and the acceptance of static trees (`layer_threshold`),
once these are known, and tried besides fixed ones, as the rule judges the next layer by the last
one's gain. The search finds the best of them: the rounds of each are run, and the cost model prices
what they grew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.devices.device import UnpricedError
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.trees.candidates import layer_threshold

SHAPES = ((6, 3), (12, 4), (24, 6))
"""Verified nodes, and nodes of a layer that get children."""
THRESHOLDS = (0.05, 0.2, 0.4, 0.6)
"""Besides the derived one, which is rounded to hundredths."""


@dataclass(frozen=True)
class OptTreeOptions(Options):
    """Which model drafts, and when it stops."""

    reads = "tree of {nodes}, beam {beam}, by {draft}, layers above {threshold}"

    draft: DraftName
    nodes: Annotated[int, Option("verified nodes, the most probable ones")]
    beam: Annotated[int, Option("nodes of a layer that get children, and children of each")]
    threshold: Annotated[float, Option("expected accepted tokens that one more layer must bring")]
    layers: Annotated[int, Option("layers at most, one pass of the draft model each")] = 8


class OptTree(ProfiledByRunning[OptTreeOptions]):
    """Pays where the accepted depth varies and layers take long."""

    summary = (
        "a draft model grows a tree while a layer is worth its pass, the best of it is verified"
    )
    paper = "Wang et al. 2024, arXiv 2406.17276"
    differs = (
        "At most `beam` nodes of a layer get children, and as many each; growth stops one layer "
        "earlier than in the released code."
    )
    shape = "dynamic tree"
    family = "trees of as many layers as pay"
    shapes = tuple((*shape, threshold) for shape in SHAPES for threshold in THRESHOLDS)

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptTreeOptions]:
        """These, and every size with the threshold that costs and acceptance call for."""
        derived = (_derived(facts, draft, *shape) for draft, shape in product(facts.drafts, SHAPES))
        every = (*self.run_settings(facts), *(one for one in derived if one is not None))
        return iter(dict.fromkeys(every))

    def plan(self, facts: ProblemFacts, options: OptTreeOptions) -> Plan:
        """Grow layers until one adds too little, prune to the best nodes, verify, accept."""
        best, beam, (forward, _) = options.nodes, options.beam, draft_passes(options.draft)
        drafted = f"""%t0 = root
%none = compute "0.0"
%pool, %end = repeat {options.layers} (%t = %t0, %s = %none) {{
    %f = pick %t of=newest best={beam}
    %q = {forward.over("%f")}
    %n = grow %t at=%f logits=%q children={beam}
    %w = measure %n value(best={best})
    %stop = compute "v - s <= {options.threshold}" v=%w s=%s
    yield %n, %w until=%stop
}}
%b = pick %pool of=all best={best}
%c = prune %pool to=%b"""
        return draft_and_verify(facts, self, drafted, best, models=(options.draft,))


def _derived(facts: ProblemFacts, draft: str, nodes: int, beam: int) -> OptTreeOptions | None:
    """The setting with the derived threshold; None where it cannot be derived."""
    if Model(draft) not in facts.profiles:
        return None
    try:
        threshold = layer_threshold(facts, Model(draft), beam)
    except UnpricedError:
        return None
    return OptTreeOptions(draft, nodes, beam, min(max(round(threshold, 2), 0.01), 1.0))


METHOD = OptTree()
