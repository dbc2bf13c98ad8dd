"""A draft model grows a tree where it is likeliest to be right, and the best of it is verified.

EAGLE-2's policy (arXiv 2406.16858, section 4) with a draft model: the root gets its best `beam`
children; layer after layer, each of the `beam` most probable new nodes gets its own; of all these
the most probable are verified. Probability is the draft model's own, multiplied along the path. The
shape follows the context, while every size is known beforehand. Children are best ranks at every
temperature, and judged as point laws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from specplan.cost_models.acceptance.drafters import Beam, Drafter
from specplan.cost_models.acceptance.evidence.pools import Pools, pool_size
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Option, Options, Refusal
from specplan.planner.templates.beams import likeliest_tree
from specplan.planner.templates.per_drafter import PerDraftModel
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.source_drafts import FOLLOWING, worthwhile_sizes

BEAMS = (2, 4)
DEPTHS = tuple(range(2, 7))
NODES = (4, 6, 8, 12, 16, 24, 32, 48)


@dataclass(frozen=True)
class DynamicTreeOptions(Options):
    """Which model drafts, and how much."""

    reads = "dynamic tree of {nodes}, beam {beam}, depth {depth}, by {draft}"

    draft: DraftName
    beam: Annotated[
        int, Option("children of a node that gets any, and nodes of a layer that do", BEAMS)
    ]
    depth: Annotated[int, Option("layers, one pass of the draft model each", DEPTHS)]
    nodes: Annotated[int, Option("verified nodes, the most probable ones", NODES, whole=True)]


class DynamicTree(PerDraftModel[DynamicTreeOptions]):
    """Trees whose shape is decided by the draft model's own probabilities."""

    summary = "a draft model grows a tree by a beam, its most probable nodes are verified"
    paper = "Li et al. 2024, arXiv 2406.16858"
    differs = "A draft model drafts, where the paper has an EAGLE head (`eagle2`)."
    acceptance = "places of the text in the pools that the beam grows"
    engine_drafter = "model"
    shape = "dynamic tree"

    def families(
        self, facts: ProblemFacts, draft: str
    ) -> Sequence[Family[DynamicTreeOptions] | Refusal]:
        """Trees by beam, depth and verified nodes."""
        return [_family(facts, draft)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model with every beam."""
        return tuple(
            Beam(role, beam)
            for role in models_alone(facts.shapes)
            for beam in BEAMS
            if beam <= facts.shapes[role].vocab_size
        )

    def plan(self, facts: ProblemFacts, options: DynamicTreeOptions) -> Plan:
        """The draft model grows the pool and the best of it is judged."""
        passes, nodes = draft_passes(options.draft), options.nodes
        tree = likeliest_tree(passes, options.beam, options.depth, nodes)
        return draft_and_verify(facts, self, tree, nodes, models=(options.draft,))

    def drafter(self, facts: ProblemFacts, options: DynamicTreeOptions) -> Drafter | None:
        """The draft model with this beam."""
        return Beam(options.draft, options.beam)


def _family(facts: ProblemFacts, draft: str) -> Family[DynamicTreeOptions] | Refusal:
    name = f"dynamic tree by {draft}"
    beams = [beam for beam in BEAMS if Beam(draft, beam) in facts.profiles]
    if not beams:
        return Refusal(name, facts.missing_profile(Beam(draft, BEAMS[-1])))
    settings: list[DynamicTreeOptions] = []
    pools: dict[int, Pools] = {}
    for beam in beams:
        evidence = facts.evidence(Beam(draft, beam), Pools, FOLLOWING)
        if isinstance(evidence, str):
            return Refusal(name, evidence)
        pools[beam] = evidence
        largest = {depth: pool_size(beam, depth) for depth in DEPTHS}
        sizes = ((d, sorted({min(n, most) for n in NODES})) for d, most in largest.items())
        settings += (DynamicTreeOptions(draft, beam, *x) for x in worthwhile_sizes(evidence, sizes))
    return Family.of(name, settings, partial(_at, draft, pools))


def _at(
    draft: str, pools: Mapping[int, Pools], point: Mapping[str, Any]
) -> DynamicTreeOptions | None:
    """Any number of nodes that a pool of known beam and depth holds."""
    beam, depth, nodes = (int(point[name]) for name in ("beam", "depth", "nodes"))
    if beam not in pools or depth > pools[beam].layers or nodes > pool_size(beam, depth):
        return None
    return DynamicTreeOptions(draft, beam, depth, nodes)


METHOD = DynamicTree()
