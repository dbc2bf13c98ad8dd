"""A draft model grows a tree layer by layer while one more layer is worth its pass.

OPT-Tree (Wang et al. 2024, arXiv 2406.17276, section 3): with the draft model's probabilities,
multiplied along paths, for acceptance, the n most probable nodes of all that were drafted are the
tree of n nodes with the most accepted tokens expected. Each pass drafts below the most probable
nodes of the newest layer; drafting ends where the expected accepted tokens of the best n grow by no
more than a threshold, and these n are verified. Children are best ranks at every temperature, point
laws.

The paper's threshold lies between a draft pass over a pass of the target and 1; what pays is that
ratio times the speedup (one more layer must bring more tokens than its pass takes time for). That
one is derived from the device's times and the acceptance of static trees (`layer_threshold`), once
these are known, and stands beside fixed ones, as the rule judges the next layer by the last one's
gain. The search finds the best of them: the rounds of each are run, and the cost model prices what
they grew.
Other than there, at most `beam` nodes of a layer get children, and as many each; the released code
grows one layer more before it stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.devices.device import UnpricedError
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.trees.candidates import layer_threshold

SHAPES = ((6, 3), (12, 4), (24, 6))
"""Verified nodes, and nodes of a layer that get children."""
THRESHOLDS = (0.05, 0.2, 0.4, 0.6)
"""Beside the derived one, which is rounded to hundredths."""
LAYERS = 8


@dataclass(frozen=True)
class OptTreeOptions(Options):
    """Which model drafts, and when it stops.

    Attributes:
        draft: name of the draft model.
        nodes: verified nodes.
        beam: nodes of a layer that get children, and children of each.
        threshold: expected accepted tokens that one more layer must bring.
        layers: at most.
    """

    draft: str
    nodes: int
    beam: int
    threshold: float
    layers: int = LAYERS

    @property
    def words(self) -> str:
        """`tree of 12, beam 4, by draft, layers above 0.2`."""
        size = f"tree of {self.nodes}, beam {self.beam}"
        return f"{size}, by {self.draft}, layers above {self.threshold}"


class OptTree(ProfiledByRunning[OptTreeOptions]):
    """Pays where how far drafts hold varies, and layers take long."""

    name: ClassVar[str] = "opt_tree"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = (
        "a draft model grows a tree while a layer is worth its pass, the best of it is verified"
    )
    paper: ClassVar[str] = "Wang et al. 2024, arXiv 2406.17276"
    by_name: ClassVar[bool] = True
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "trees of as many layers as pay"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "nodes": "verified nodes, the most probable ones",
        "beam": "nodes of a layer that get children, and children of each",
        "threshold": "expected accepted tokens that one more layer must bring",
        "layers": "layers at most, one pass of the draft model each",
    }

    def settings(self, models: Sequence[str]) -> Iterator[OptTreeOptions]:
        """Every size with every threshold by every draft model."""
        return (
            OptTreeOptions(draft, *shape, threshold)
            for draft, shape, threshold in product(models, SHAPES, THRESHOLDS)
        )

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptTreeOptions]:
        """These, and every size with the threshold that costs and acceptance call for."""
        derived = (_derived(facts, draft, shape) for draft, shape in product(facts.drafts, SHAPES))
        every = (*self.run_settings(facts), *(one for one in derived if one is not None))
        return iter(dict.fromkeys(every))

    def plan(self, facts: ProblemFacts, options: OptTreeOptions) -> Plan:
        """Grow layers until one adds too little, keep the best nodes, verify, accept."""
        draft, cache = options.draft, cache_of(options.draft)
        best, beam = options.nodes, options.beam
        body = f"""%t0 = root
%none = compute "0.0"
%pool, %end = repeat {options.layers} (%t = %t0, %s = %none) {{
    %f = pick %t of=newest best={beam}
    %q = forward {draft} %f cache={cache} pending=2
    %n = grow %t at=%f logits=%q children={beam}
    %w = measure %n value(best={best})
    %stop = compute "v - s <= {options.threshold}" v=%w s=%s
    yield %n, %w until=%stop
}}
%b = pick %pool of=all best={best}
%c = prune %pool to=%b
{judge("%c", best, rule=None if facts.greedy else "recursive")}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body)


def _derived(facts: ProblemFacts, draft: str, shape: tuple[int, int]) -> OptTreeOptions | None:
    """The setting with the derived threshold; None where nothing tells it."""
    drafter = Model(draft)
    if drafter not in facts.profiles:
        return None
    nodes, beam = shape
    try:
        threshold = layer_threshold(facts, drafter, beam)
    except UnpricedError:
        return None
    return OptTreeOptions(draft, nodes, beam, min(max(round(threshold, 2), 0.01), 1.0))


METHOD = OptTree()
