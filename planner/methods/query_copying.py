"""Windows of the request's own text, several side by side, wherever the last token occurs.

Query copying (Andronov et al. 2024, arXiv 2407.09685), for outputs that share long pieces with
their input, such as molecules as SMILES strings: many short windows of the input are drafts at
once, and the one that the target accepts furthest counts. Those that begin alike share their
nodes. Drafts are certain proposals, judged at a temperature above 0 by the recursive rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class QueryCopyingOptions(Options):
    """How many windows, and how much of them."""

    reads = "{windows} windows of {length}, {nodes} tokens in all"

    windows: Annotated[int, Option("places copied from, the newest ones")]
    length: Annotated[int, Option("tokens of a window")]
    nodes: Annotated[int, Option("drafted tokens at most, those that most windows share first")]


class QueryCopying(ProfiledByRunning[QueryCopyingOptions]):
    """Pays where a token's last occurrence says little, but one of its occurrences is copied."""

    summary = "windows of the text after the last token's occurrences, side by side"
    paper = "Andronov et al. 2024, arXiv 2407.09685"
    differs = (
        "Windows begin where the last token occurs, in the output too, where the paper tries all "
        "windows of the input."
    )
    shape = "dynamic tree"
    sources = ("prompt_lookup",)
    family = "windows"
    shapes = ((2, 4, 7), (4, 4, 12), (4, 8, 24), (8, 8, 48))

    def plan(self, facts: ProblemFacts, options: QueryCopyingOptions) -> Plan:
        """Look up, verify, accept."""
        limits = f"children={options.windows} length={options.length} nodes={options.nodes}"
        lookup = f"lookup @text %t0 at=%t0 match=[1, 1] {limits}"
        return draft_and_verify(facts, self, f"%t0 = root\n%c = {lookup}", options.nodes)


METHOD = QueryCopying()
