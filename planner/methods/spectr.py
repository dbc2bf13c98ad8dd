"""Several independent chains of a draft model, judged together at the root.

SpecTr (Sun et al. 2023, arXiv 2310.15141): k chains are drawn independently from the draft model,
and K-SEQ scans their first tokens under one level of acceptance; all chains that begin with the
accepted one continue, and their next tokens are scanned in the same way. At temperature 0 the
chains begin with the best ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import layers_text

CHAINS = (2, 4, 8)
LENGTHS = (1, 2, 3, 4, 6)


@dataclass(frozen=True)
class SpecTrOptions(Options):
    """Which model drafts, and how much."""

    reads = "{chains} chains of {length} by {draft}"

    draft: DraftName
    chains: Annotated[int, Option("chains drawn independently", CHAINS)]
    length: Annotated[int, Option("tokens of each chain", LENGTHS)]

    @property
    def nodes(self) -> int:
        """Drafted tokens."""
        return self.chains * self.length


class SpecTr(ProfiledByRunning[SpecTrOptions]):
    """Several chances at the first token for one pass of the draft model each further level."""

    summary = "chains drawn independently from a draft model, judged by K-SEQ"
    paper = "Sun et al. 2023, arXiv 2310.15141"
    shape = "static tree"
    family = "independent chains"

    def plan(self, facts: ProblemFacts, options: SpecTrOptions) -> Plan:
        """Draw the chains, verify them all, accept by K-SEQ."""
        passes, length, drawn = draft_passes(options.draft), options.length, not facts.greedy
        drafted, tree = layers_text(length, passes, first=options.chains, drawn=drawn), "%c"
        if drawn and length > 1:
            drafted, tree = f"{drafted}\n%k = graft %c same=merge", "%k"
        models = (options.draft,)
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=models, tree=tree, rule="k_seq"
        )


METHOD = SpecTr()
