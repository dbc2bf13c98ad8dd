"""Trees whose paths are drawn together: a beam of so many, none of them twice.

Recursive speculative decoding (Jeon et al. 2024, arXiv 2402.14160), its RSD-S: of all paths one
token longer than those of the beam so many are drawn without replacement (stochastic beam search,
Kool et al. 2019, arXiv 1903.06059), so that likely beginnings branch more and unlikely ones end.
What the beam leaves stays in the tree, and recursive rejection sampling judges all of it. RSD-C,
whose nodes all have as many children, is `recursive_sampling`. At temperature 0 the beam keeps the
best paths.
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

SHAPES = ((2, 2), (2, 4), (3, 3), (4, 3), (4, 5), (6, 4))
"""Paths of the beam, and its levels."""


@dataclass(frozen=True)
class StochasticBeamOptions(Options):
    """Which model drafts, how many paths, and how deep.

    Attributes:
        draft: name of the draft model.
        width: paths of the beam.
        depth: levels of the tree.
    """

    draft: str
    width: int
    depth: int

    @property
    def words(self) -> str:
        """`beam of 4 paths, 3 deep, drawn by draft`."""
        return f"beam of {self.width} paths, {self.depth} deep, drawn by {self.draft}"


class StochasticBeam(ProfiledByRunning[StochasticBeamOptions]):
    """As many chances as the draft model's law finds worthwhile, where it finds them."""

    name: ClassVar[str] = "stochastic_beam"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "a draft model draws the paths of a beam together, none twice"
    paper: ClassVar[str] = "Jeon et al. 2024, arXiv 2402.14160"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "stochastic beams"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "width": "paths of the beam",
        "depth": "levels of the tree",
    }

    def settings(self, models: Sequence[str]) -> Iterator[StochasticBeamOptions]:
        """A few beams for every draft model."""
        return (StochasticBeamOptions(draft, *shape) for draft, shape in product(models, SHAPES))

    def plan(self, facts: ProblemFacts, options: StochasticBeamOptions) -> Plan:
        """Draw level by level the best of perturbed paths, verify, accept."""
        draft, width, depth = options.draft, options.width, options.depth
        cache, rule, draw, how = cache_of(draft), None, "", ""
        if not facts.greedy:
            rule, how = "recursive", "how=draw_distinct by=%u"
            draw = f"\n    %u = uniform {width * width} stream=draft"
        body = f"""%t0 = root
%c = repeat {depth} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {draft} %f cache={cache} pending=2{draw}
    %n = grow %t at=%f logits=%q children={width} {how} keep={width}
    yield %n
}}
{judge("%c", width * depth, rule=rule)}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body)


METHOD = StochasticBeam()
