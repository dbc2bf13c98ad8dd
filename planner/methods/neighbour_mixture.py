"""The target mixed with the next tokens of the nearest states of a corpus; spans are its drafts.

Nearest-neighbour language models (Khandelwal et al. 2019, arXiv 1911.00172) mix the target's
probabilities with those of the tokens that followed the nearest states of a corpus. The share of
the store and the spans that are drafted are those of NEST (Li et al. 2024, arXiv 2405.19325), and
spans are judged without loss: the output is the mixture's at every temperature.
"""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.mixtures import NeighbourOptions, NeighbourSpans, neighbour_plan


class NeighbourMixture(NeighbourSpans[NeighbourOptions]):
    """Text of a corpus enters where its states are near, and saves passes."""

    summary = "spans behind the nearest states of a corpus, for their mixture with the target"
    paper = "Khandelwal et al. 2019, arXiv 1911.00172"
    differs = (
        "The store's share is NEST's confidence at each place, where the paper has one constant; "
        "states are those that enter the target's last layer, and the search is exact."
    )
    law = "stated"
    by_name = True

    def plan(self, facts: ProblemFacts, options: NeighbourOptions) -> Plan:
        """A span, verified, mixed, and judged without loss."""
        return neighbour_plan(facts, self, options, "deterministic")


METHOD = NeighbourMixture()
