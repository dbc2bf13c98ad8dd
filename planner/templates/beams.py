"""Trees that grow by a beam: what several methods draft alike, and draw or judge in their ways."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.cost_models.acceptance.evidence.pools import pool_size
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.plan_text import Pass, draft_passes, uniforms
from specplan.planner.templates.static_trees import layers_text


def drawn_beam(facts: ProblemFacts, draft: str, width: int, depth: int) -> str:
    """Text of a stochastic beam search: its levels have `width` nodes, no path is drawn twice.

    Kool et al. 2019, arXiv 1903.06059: each level keeps the best of perturbed paths among all
    children of the level above. Nodes of earlier levels stay in the tree, `%t0` is its root.
    """
    forward, _ = draft_passes(draft)
    draw, how = uniforms(facts, width * width, use="how=draw_distinct")
    return f"""%t0 = root
%c = repeat {depth} (%t = %t0) {{
    %f = pick %t of=newest
    %q = {forward.over("%f")}
    {draw}
    %n = grow %t at=%f logits=%q children={width} {how} keep={width}
    yield %n
}}"""


def likeliest_tree(passes: Sequence[Pass], beam: int, depth: int, nodes: int) -> str:
    """Text of EAGLE-2's tree, `%c` (Li et al. 2024, arXiv 2406.16858, section 4).

    The root gets its best `beam` children; level after level, each of the `beam` most probable new
    nodes gets its own; the most probable `nodes` of all stay.

    Args:
        passes: of the drafter, the first one and that of all deeper levels.
        beam: children of a node that gets any, and nodes of a level that do.
        depth: levels.
        nodes: that stay, at most those that grow.
    """
    pool, prune = "%c", ""
    if nodes < pool_size(beam, depth):
        pool, prune = "%pool", f"\n%b = pick %pool of=all best={nodes}\n%c = prune %pool to=%b"
    pick = f"best={beam}"
    return layers_text(depth, passes, first=beam, later=beam, pick=pick, result=pool) + prune
