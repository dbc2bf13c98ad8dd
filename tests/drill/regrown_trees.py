"""Two drafters' trees are joined, scored by one of them, cut back, and grown again below the cut.

The whole of a package of its own: nothing of specplan names it. The first drafter says how likely
it finds what both proposed; what it finds likeliest is spared by the cut, and it goes on from
there. Nodes are best ranks at every temperature, certain proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BUDGETS = (2, 4)


@dataclass(frozen=True)
class RegrownOptions(Options):
    """Who drafts, and how much is left of it."""

    reads = "trees of {first} and {second}, the best {budget}, grown again by {first}"

    first: DraftName
    second: DraftName
    budget: Annotated[int, Option("nodes that the cut spares")]


class RegrownTrees(ProfiledByRunning[RegrownOptions]):
    """Pays where drafters err at different places, and one of them is worth asking twice."""

    summary = "two drafters' trees, joined, cut back and grown again"
    paper = "a drill: published nowhere"
    shape = "dynamic tree"
    by_name = True
    family = "regrown trees"

    def settings(self, models: Sequence[str]) -> Iterator[RegrownOptions]:
        """Every two draft models in either order, by budget."""
        pairs = product(permutations(models, 2), BUDGETS)
        return (RegrownOptions(*pair, budget) for pair, budget in pairs)

    def plan(self, facts: ProblemFacts, options: RegrownOptions) -> Plan:
        """Draft two trees, join, score, cut, grow, verify, accept."""
        first, second, budget = options.first, options.second, options.budget
        whole, _ = draft_passes(first, 4)
        drafted = f"""{_tree("a", first)}
{_tree("b", second)}
%joined = graft %a2 %b2 same=merge
%logits = {whole.over("%joined")}
%scored = score %joined rows=%logits
%best = pick %scored of=all best={budget}
%cut = prune %scored to=%best
%ends = pick %cut of=leaves
%more = {whole.over("%cut")}
%c = grow %cut at=%ends logits=%more"""
        return draft_and_verify(facts, self, drafted, 2 * budget, models=(first, second))


def _tree(name: str, drafter: str) -> str:
    """Two levels of a drafter's best tokens: two of the first, one below each."""
    first, later = draft_passes(drafter, 4)
    return f"""%{name}0 = root
%{name}q0 = {first.over(f"%{name}0")}
%{name}1 = grow %{name}0 at=%{name}0 logits=%{name}q0 children=2
%{name}f1 = pick %{name}1 of=newest
%{name}q1 = {later.over(f"%{name}f1")}
%{name}2 = grow %{name}1 at=%{name}f1 logits=%{name}q1"""


METHOD = RegrownTrees()
