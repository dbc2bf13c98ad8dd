"""Spans behind the nearest states of a corpus, judged leniently by their mixture with the target.

NEST (Li et al. 2024, arXiv 2405.19325) wants text of the corpus in the output: what is drafted
stands where it is not much less probable than the mixture's best token. The rest of a span is
dropped at the first token that is. Lossy: the mixture is not the target's distribution, and the
lenient test changes the mixture by what the rule `span` says (at temperature 0: `top_beta`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option
from specplan.planner.templates.mixtures import NeighbourOptions, NeighbourSpans, neighbour_plan


@dataclass(frozen=True)
class NestOptions(NeighbourOptions):
    """Also how strict the test is."""

    reads = "spans of up to {length} from {store}, strictness {strictness}"

    strictness: Annotated[
        float,
        Option("part of the best token's probability that a drafted one is sure with", (0.05, 0.5)),
    ]


class Nest(NeighbourSpans[NestOptions]):
    """More of the corpus in the output, and fewer passes; changes the output distribution."""

    summary = "spans behind the nearest states of a corpus, judged leniently by the mixture"
    paper = "Li et al. 2024, arXiv 2405.19325"
    differs = (
        "The whole store is searched, exactly, where the paper first retrieves passages for a "
        "request, and counts no state out that was emitted already; a span starts behind the token "
        "that was emitted last, and sources are not attributed."
    )
    law = "free"
    by_name = True

    def plan(self, facts: ProblemFacts, options: NestOptions) -> Plan:
        """A span, verified, mixed, and judged leniently."""
        rule = f"span(strictness={options.strictness})"
        if facts.greedy:
            tolerance = -log(options.strictness)
            rule = f"top_beta(beta={facts.target.vocab_size}, tolerance={tolerance})"
        return neighbour_plan(facts, self, options, rule)


METHOD = Nest()
