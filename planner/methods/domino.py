"""Drafts that the request's grammar forces, or that stood in the same state of its parser before.

DOMINO (Beurer-Kellner et al. 2024, arXiv 2403.06988): under a grammar, long runs of tokens are
forced, such as the keys of a JSON schema, and where several are possible one is often common. The
target verifies a run in one pass. Drafts are certain proposals: at a temperature above 0 one is
accepted with the probability that the masked target gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.problem.workload import read_prompts
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class DominoOptions(Options):
    """How far it drafts."""

    reads = "up to {length} tokens"

    length: Annotated[int, Option("tokens proposed at most")]


class Domino(ProfiledByRunning[DominoOptions]):
    """Costs no draft model; pays where a grammar leaves little choice."""

    summary = "what the grammar forces, else what stood in the same state of the parser before"
    paper = "Beurer-Kellner et al. 2024, arXiv 2403.06988"
    differs = (
        "A state of the parser is known by the tokens that it allows and the token before, and a "
        "count drafts whatever its share, where the paper has a threshold."
    )
    shares = True
    memory = "65,536 states of all requests, 1,200 bytes each"
    family = "grammar"
    shapes = ((2,), (4,), (8,), (16,))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """There is a grammar for all outputs, or for those of some prompts."""
        workload = facts.problem.workload
        if workload.followed is not None:
            return None
        if workload.prompts is not None and any(p.followed for p in read_prompts(workload.prompts)):
            return None
        return "outputs follow no grammar: the workload has no json_schema and no grammar"

    def plan(self, facts: ProblemFacts, options: DominoOptions) -> Plan:
        """Count, look up, verify, accept."""
        drafted = f"""%t0 = root
update @grammar %t0 last=1
%c = lookup @grammar %t0 at=%t0 match=[1, 1] length={options.length}"""
        states = ("@grammar = source grammar(capacity=65536) scope=process",)
        return draft_and_verify(facts, self, drafted, options.length, states=states)


METHOD = Domino()
