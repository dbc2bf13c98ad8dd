"""The whole input is the first draft; after an edit, copying goes on where the text matches again.

Aggressive decoding (Sun et al. 2021, arXiv 2106.04970), for outputs that are an edited input, such
as corrected text: the first round drafts the prompt from its first token, so that an unchanged
beginning costs one pass. Where the output departs from it, tokens are decoded until their end
occurs in the text, and what followed there is drafted. Drafts are certain proposals, judged at a
temperature above 0 by the recursive rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.merged_rounds import first_then
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LONGEST_MATCH = 4


@dataclass(frozen=True)
class AggressiveOptions(Options):
    """How much is copied, and after which match copying goes on."""

    reads = "the input, {length} tokens at once, again after a match of {match}"

    length: Annotated[int, Option("tokens copied at once at most", (8, 16, 32, 64))]
    match: Annotated[int, Option("shortest suffix after which copying goes on, tokens", (1, 2))]


class Aggressive(ProfiledByRunning[AggressiveOptions]):
    """Costs no draft model; pays where outputs repeat their prompt from its beginning."""

    summary = "the prompt from its first token is drafted, then what follows a match"
    paper = "Sun et al. 2021, arXiv 2106.04970"
    differs = (
        "The draft has a length at most, and the input is the whole prompt: where instructions "
        "stand before it, it is found by a match alone."
    )
    sources = ("prompt_lookup",)
    family = "the input"

    def plan(self, facts: ProblemFacts, options: AggressiveOptions) -> Plan:
        """The prompt first, then lookups, each verified."""
        begin = self._copied(facts, "[0, 0]", options.length)
        resume = self._copied(facts, f"[{options.match}, {LONGEST_MATCH}]", options.length)
        return first_then(begin, 1, resume, ("begin", "resume"))

    def _copied(self, facts: ProblemFacts, match: str, length: int) -> Plan:
        lookup = f"lookup @text %t0 at=%t0 match={match} length={length}"
        return draft_and_verify(facts, self, f"%t0 = root\n%c = {lookup}", length)


METHOD = Aggressive()
