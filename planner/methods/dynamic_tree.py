"""A draft model grows a tree where it is likeliest to be right, and the best of it is verified.

EAGLE-2's policy (arXiv 2406.16858, section 4) with a draft model: the root gets its best `beam`
children; layer after layer, each of the `beam` most probable new nodes gets its own; of all these
the most probable are verified. Probability is the draft model's own, multiplied along the path. The
shape follows the context, while every size is known beforehand. Children are best ranks at every
temperature, and judged as point laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from specplan.cost_models.acceptance.drafters import Beam, Drafter
from specplan.cost_models.acceptance.evidence.pools import Pools, pool_size
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan

BEAMS = (2, 4)
FOLLOWING = "trees that follow the context"
DEPTHS = tuple(range(2, 7))
NODES = (4, 6, 8, 12, 16, 24, 32, 48)
DOMAINS = {
    "beam": Domain(BEAMS, "children of a node that gets any, and nodes of a layer that do"),
    "depth": Domain(DEPTHS, "layers, one pass of the draft model each"),
    "nodes": Domain(NODES, "verified nodes, the most probable ones", whole=True),
}


@dataclass(frozen=True)
class DynamicTreeOptions(Options):
    """Which model drafts, and how much.

    Attributes:
        draft: name of the draft model.
        beam: children of every node that gets any, and nodes of a layer that do.
        depth: layers of the tree.
        nodes: verified nodes.
    """

    draft: str
    beam: int
    depth: int
    nodes: int

    @property
    def words(self) -> str:
        """`dynamic tree of 16, beam 4, depth 5, by draft`."""
        size = f"{self.nodes}, beam {self.beam}, depth {self.depth}"
        return f"dynamic tree of {size}, by {self.draft}"


class DynamicTree(Method[DynamicTreeOptions]):
    """Trees whose shape is decided by the draft model's own probabilities."""

    name: ClassVar[str] = "dynamic_tree"
    engine_drafter: ClassVar[str] = "model"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = (
        "a draft model grows a tree by a beam, its most probable nodes are verified"
    )
    paper: ClassVar[str] = "Li et al. 2024, arXiv 2406.16858"
    acceptance: ClassVar[str] = "places of the text in the pools that the beam grows"
    needs_draft_model: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[DynamicTreeOptions] | Refusal]:
        """Per draft model, trees by beam, depth and verified nodes."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        return [_family(facts, draft) for draft in facts.drafts]

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
        draft, beam, cache = options.draft, options.beam, cache_of(options.draft)
        cut = options.nodes < pool_size(beam, options.depth)
        kept = f"%b = pick %pool of=all best={options.nodes}\n%c = prune %pool to=%b\n"
        body = f"""%t0 = root
%q0 = forward {draft} %t0 cache={cache} pending=2
%t1 = grow %t0 at=%t0 logits=%q0 children={beam}
{"%pool" if cut else "%c"} = repeat {options.depth - 1} (%t = %t1) {{
    %f = pick %t of=newest best={beam}
    %q = forward {draft} %f cache={cache}
    %n = grow %t at=%f logits=%q children={beam}
    yield %n
}}
{kept if cut else ""}{judge("%c", options.nodes, rule=None if facts.greedy else "recursive")}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body)

    def drafter(self, facts: ProblemFacts, options: DynamicTreeOptions) -> Drafter | None:
        """The draft model with this beam."""
        return Beam(options.draft, options.beam)


def _family(facts: ProblemFacts, draft: str) -> Family[DynamicTreeOptions] | Refusal:
    name = f"dynamic tree by {draft}"
    known = {beam: facts.profiles.get(Beam(draft, beam)) for beam in BEAMS}
    given = {beam: profile for beam, profile in known.items() if profile is not None}
    if not given:
        return Refusal(name, facts.missing_profile(Beam(draft, BEAMS[-1])))
    settings: list[DynamicTreeOptions] = []
    for beam, profile in given.items():
        if not isinstance(profile.evidence, Pools):
            return Refusal(name, facts.other_evidence(Beam(draft, beam), FOLLOWING))
        settings += _worthwhile(draft, beam, profile.evidence)
    return Family(name, DOMAINS, tuple(settings), partial(_at, draft, given))


def _at(
    draft: str, known: Mapping[int, AcceptanceProfile], point: Mapping[str, Any]
) -> DynamicTreeOptions | None:
    """Any number of nodes that a pool of known beam and depth holds."""
    beam, depth, nodes = (int(point[name]) for name in DOMAINS)
    profile = known.get(beam)
    pools = None if profile is None else profile.evidence
    if not isinstance(pools, Pools) or depth > pools.layers:
        return None
    if nodes > pool_size(beam, depth):
        return None
    return DynamicTreeOptions(draft, beam, depth, nodes)


def _worthwhile(draft: str, beam: int, pools: Pools) -> Iterator[DynamicTreeOptions]:
    """Settings of a beam that emit more than any other that drafts and verifies no more."""
    found: list[tuple[int, int, float]] = []
    for depth in (depth for depth in DEPTHS if depth <= pools.layers):
        largest = pool_size(beam, depth)
        for nodes in sorted({min(nodes, largest) for nodes in NODES}):
            model = pools.cut(depth, nodes).model
            tokens = sum(model.accepted_at_least(range(-1, depth - 1), (0,) * depth))
            others = [t for d, n, t in found if d <= depth and n <= nodes]
            if not others or tokens > max(others) + 1e-9:
                found.append((depth, nodes, tokens))
                yield DynamicTreeOptions(draft, beam, depth, nodes)


METHOD = DynamicTree()
