"""A draft model's chain, lengthened by phrases that a pool knows, several side by side.

Ouroboros (Zhao et al. 2024, arXiv 2402.13720): the target verifies far more tokens in a pass than a
draft model can write in time, so that phrases from a pool are appended to the draft, several of
them, at no pass of the draft model. The pool learns runs of tokens from the texts of all requests,
and from each verification what the target would have written at every place of the draft, the
rejected ones too: there its choices are often right, only too early. Phrases are certain proposals,
judged at a temperature above 0 by the recursive rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

CAPACITY = 16384


@dataclass(frozen=True)
class OuroborosOptions(Options):
    """What is drafted, and how far it goes on."""

    reads = "chain of {length} by {draft}, then {phrases} phrases of {tokens}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens")]
    phrases: Annotated[int, Option("phrases that are appended, side by side")]
    tokens: Annotated[int, Option("tokens of a phrase")]

    @property
    def nodes(self) -> int:
        """Verified tokens."""
        return self.length + self.phrases * self.tokens


class Ouroboros(ProfiledByRunning[OuroborosOptions]):
    """Pays where outputs repeat phrases, and the target verifies many tokens as fast as a few."""

    summary = "a draft model's chain, lengthened by phrases that a pool has learned"
    paper = "Zhao et al. 2024, arXiv 2402.13720"
    differs = "The draft model drafts token by token, not phrase by phrase."
    shares = True
    memory = "16,384 phrases of all requests, 600 bytes each"
    shape = "static tree"
    family = "chain and phrases"
    shapes = ((2, 1, 2), (2, 2, 3), (3, 3, 3), (4, 3, 4))

    def plan(self, facts: ProblemFacts, options: OuroborosOptions) -> Plan:
        """Draft, append phrases, verify, accept, learn what the target would have written."""
        order, length = options.tokens + 1, options.length
        forward, _ = draft_passes(options.draft, order + 1)
        drafted = f"""{drafted_chain(length, forward, drawn=not facts.greedy, result="%d")}
update @phrases %t0 last={order}
%end = pick %d of=leaves
%c = lookup @phrases %d at=%end match=[1, 1] children={options.phrases} length={options.tokens}"""
        learn = f"%said = relabel %d logits=%l\nupdate @phrases %said last={length + 1}"
        pool = f"phrases(order={order}, width={2 * options.phrases}, capacity={CAPACITY})"
        models, states = (options.draft,), (f"@phrases = source {pool} scope=process",)
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=models, after=learn, states=states
        )


METHOD = Ouroboros()
