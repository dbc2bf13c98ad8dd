"""Ready trees of the commonest n-grams of a corpus, looked up by the text's end.

CREST (Ho et al. 2024, arXiv 2408.04678): where REST keeps a corpus and merges what followed a match
at every lookup, a dictionary keeps the merged tree of each of its commonest n-grams. It takes less
room and no merging; what follows rarer or longer matches is lost. Drafts are certain proposals,
judged at a temperature above 0 by the recursive rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.tables.sources.trees import FILE
from specplan.ir.values import Text, print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

ORDER = 3


@dataclass(frozen=True)
class CrestOptions(Options):
    """How much of a stored tree is drafted."""

    reads = "ready tree of {nodes}, depth up to {length}"

    nodes: Annotated[int, Option("drafted tokens, the commonest continuations")]
    length: Annotated[int, Option("depth at most")]


class Crest(ProfiledByRunning[CrestOptions]):
    """A lookup is one search of a dictionary; pays where outputs resemble the corpus."""

    summary = "ready trees of the commonest n-grams of a corpus"
    paper = "Ho et al. 2024, arXiv 2408.04678"
    differs = "N-grams have at most 3 tokens, and `specplan datastore build --trees` says how many."
    memory = "the dictionary, some 700 bytes an entry"
    shape = "dynamic tree"
    sources = ("datastore",)
    family = "ready trees"
    shapes = ((4, 2), (8, 3), (16, 4), (32, 6), (64, 8))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Says how to make the trees where the datastore has none."""
        folder = facts.problem.datastore
        if folder is not None and (folder / FILE).is_file():
            return None
        return "the datastore has no ready trees: build it with `specplan datastore build --trees`"

    def plan(self, facts: ProblemFacts, options: CrestOptions) -> Plan:
        """Look up, verify, accept."""
        path = print_atom(Text(str(facts.problem.datastore)))
        states = (f"@trees = source trees(order={ORDER}) scope=read_only path={path}",)
        limits = f"children={options.nodes} length={options.length} nodes={options.nodes}"
        drafted = f"%t0 = root\n%c = lookup @trees %t0 at=%t0 match=[1, {ORDER}] {limits}"
        return draft_and_verify(facts, self, drafted, options.nodes, states=states)


METHOD = Crest()
