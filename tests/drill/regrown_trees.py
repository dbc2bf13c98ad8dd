"""Two drafters' trees are joined, scored by one of them, cut back, and grown again below the cut.

The whole of a package of its own: nothing of specplan names it. The first drafter says how likely
it finds what both proposed; what it finds likeliest is spared by the cut, and it goes on from
there. Nodes are best ranks at every temperature, certain proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BUDGETS = (2, 4)
"""Nodes that the cut spares."""


@dataclass(frozen=True)
class RegrownOptions(Options):
    """Who drafts, and how much is left of it.

    Attributes:
        first: the draft model that goes on after the cut.
        second: the other one.
        budget: nodes that the cut spares.
    """

    first: str
    second: str
    budget: int

    @property
    def words(self) -> str:
        """`trees of draft and small, the best 4, grown again by draft`."""
        both = f"trees of {self.first} and {self.second}"
        return f"{both}, the best {self.budget}, grown again by {self.first}"


class RegrownTrees(ProfiledByRunning[RegrownOptions]):
    """Pays where drafters err at different places, and one of them is worth asking twice."""

    name: ClassVar[str] = "regrown_trees"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "two drafters' trees, joined, cut back and grown again"
    paper: ClassVar[str] = "a drill: published nowhere"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "regrown trees"
    domains: ClassVar[Mapping[str, str]] = {
        "first": "who drafts and goes on after the cut",
        "second": "who drafts beside it",
        "budget": "nodes that the cut spares",
    }

    def settings(self, drafters: Sequence[str]) -> Iterator[RegrownOptions]:
        """Every two draft models in either order, by budget."""
        for first, second in permutations(drafters, 2):
            yield from (RegrownOptions(first, second, budget) for budget in BUDGETS)

    def plan(self, facts: ProblemFacts, options: RegrownOptions) -> Plan:
        """Draft two trees, join, score, cut, grow, verify, accept."""
        first, second, budget = options.first, options.second, options.budget
        body = f"""{_tree("a", first)}
{_tree("b", second)}
%joined = graft %a2 %b2 same=merge
%said = forward {first} %joined cache={cache_of(first)} pending=4
%scored = score %joined rows=%said
%best = pick %scored of=all best={budget}
%cut = prune %scored to=%best
%ends = pick %cut of=leaves
%more = forward {first} %cut cache={cache_of(first)} pending=4
%c = grow %cut at=%ends logits=%more
{judge("%c", 2 * budget, rule=None if facts.greedy else "recursive")}
commit {cache_of(first)} %e
commit {cache_of(second)} %e"""
        return single_round_plan(facts, self.name, (first, second), body)


def _tree(name: str, drafter: str) -> str:
    """Two levels of a drafter's best tokens: two of the first, one below each."""
    cache = cache_of(drafter)
    return f"""%{name}0 = root
%{name}q0 = forward {drafter} %{name}0 cache={cache} pending=4
%{name}1 = grow %{name}0 at=%{name}0 logits=%{name}q0 children=2
%{name}f1 = pick %{name}1 of=newest
%{name}q1 = forward {drafter} %{name}f1 cache={cache}
%{name}2 = grow %{name}1 at=%{name}f1 logits=%{name}q1"""


METHOD = RegrownTrees()
