"""A tree whose paths a draft model draws together: what several methods judge in different ways."""

from __future__ import annotations

from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.plan_text import draft_passes, uniforms


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
