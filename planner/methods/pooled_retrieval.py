"""Continuations from a small pool of a group's texts, judged by what the target nearly chose.

DARE (Xi et al. 2024, arXiv 2408.05676), for recommendation: requests of a group of users or items
are answered alike, so that a small pool of the group's texts holds better drafts than a large one
of all. Drafts are merged into a tree, and a token stands if it is among the target's first choices
and not much less probable than the best (rule `relaxed`). Lossy at every temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.values import Text, print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

TOP, DELTA = 10, 0.6
LONGEST = 8


@dataclass(frozen=True)
class PooledOptions(Options):
    """How much is drafted."""

    reads = "merged tree of {nodes}, depth up to {length}, from the group's pool"

    nodes: Annotated[int, Option("drafted tokens, the commonest continuations")]
    length: Annotated[int, Option("tokens of a continuation at most")]


class PooledRetrieval(ProfiledByRunning[PooledOptions]):
    """Costs no draft model; changes the output distribution."""

    summary = "continuations from the texts of a group, judged leniently"
    paper = "Xi et al. 2024, arXiv 2408.05676"
    differs = (
        "A problem has the pool of one group, its datastore: whoever serves several groups makes a "
        "bundle for each, where the paper's server finds the pool of a request."
    )
    law = "free"
    memory = "the pool and its sorted order"
    shape = "dynamic tree"
    sources = ("datastore",)
    family = "pools of a group"
    shapes = ((8, 3), (16, 4), (48, 8))

    def plan(self, facts: ProblemFacts, options: PooledOptions) -> Plan:
        """Look up a tree, verify, accept what is probable enough."""
        path = print_atom(Text(str(facts.problem.datastore)))
        limits = f"children={options.nodes} length={options.length} nodes={options.nodes}"
        drafted = f"""%t0 = root
%c = lookup @pool %t0 at=%t0 match=[1, {LONGEST}] {limits}"""
        return draft_and_verify(
            facts, self, drafted, options.nodes, rule=f"relaxed(top={TOP}, delta={DELTA})",
            states=(f"@pool = source datastore(order={LONGEST}) scope=read_only path={path}",),
        )  # fmt: skip


METHOD = PooledRetrieval()
