"""A cascade of drafters: a draft model drafts the first tokens, counted n-grams the last ones.

CS Drafting (Chen et al. 2023, arXiv 2312.11462). Horizontal: tokens far down a chain are seldom
accepted, so that cheaper drafters write them: here the request's own n-grams continue where the
draft model stops, down to its bigrams (their Max-Gram: the longest known run, then shorter ones).
Vertical: no draft model drafts token by token; the n-grams propose, and it judges them in one pass.
The source knows the text as it was when the round began, not the round's own draft.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.several_drafters import InTurns, TurnsOptions, drafted_in_turns
from specplan.planner.templates.source_drafts import STATE

NGRAMS = DRAFT_SOURCES["ngram"]
MATCH = print_atom(NGRAMS.match)
TOKENS = (1, 2, 3, 4, 6)
TAILS = (1, 2, 4, 8)


@dataclass(frozen=True)
class CascadeOptions(TurnsOptions):
    """Who drafts how much."""

    reads = "{passes}{each} by {draft}, then up to {tail} by n-grams"

    passes: Annotated[int, Option("passes of the draft model")]
    proposed: Annotated[
        int, Option("tokens of the n-grams that each judges at most, 0 where it drafts alone")
    ]
    tail: Annotated[int, Option("tokens that the n-grams go on with at most")]

    @property
    def segments(self) -> tuple[DraftSegment, ...]:
        """The draft model alone or as a judge of n-grams, then the n-grams."""
        model = DraftSegment("judged", self.proposed) if self.proposed else DraftSegment("model", 1)
        return (*(model,) * self.passes, DraftSegment("source", self.tail))

    @property
    def each(self) -> str:
        """The tokens of a pass, where these are not one."""
        return f" times up to {self.proposed + 1}" if self.proposed else ""


class Cascade(InTurns[CascadeOptions]):
    """Pays where a longer chain is worth it, but not a pass of the draft model per token."""

    summary = "a draft model drafts first tokens, n-grams of the text those after"
    paper = "Chen et al. 2023, arXiv 2312.11462"
    differs = (
        "One draft model and one level of the cascade: no matrix of several models, and no "
        "lenience between drafters."
    )
    acceptance = "the draft model's token, and length of the n-grams' draft, at every position"
    memory = "65,536 runs of tokens of each request, 900 bytes each"
    sources = (NGRAMS.word,)
    partner = NGRAMS.word

    def settings(self, draft: str) -> Mapping[str, Iterable[CascadeOptions]]:
        """The horizontal cascade, and the vertical one with it."""
        horizontal, vertical = product(TOKENS, (0,), TAILS), product(TOKENS[:3], (2, 4), TAILS)
        return {
            f"horizontal by {draft}": (CascadeOptions(draft, *size) for size in horizontal),
            f"vertical and horizontal by {draft}": (CascadeOptions(draft, *x) for x in vertical),
        }

    def plan(self, facts: ProblemFacts, options: CascadeOptions) -> Plan:
        """Count, draft with the model, continue with the n-grams, verify, accept."""
        draft, passes, drawn = options.draft, options.passes, not facts.greedy
        pending, learn = options.tail + 2, f"update @{STATE} %t0 last={NGRAMS.last}"
        if options.proposed:
            first = drafted_in_turns(
                draft, f"@{STATE} match={MATCH}", passes, options.proposed,
                drawn=drawn, result="%first", learn=learn, pending=pending,
            )  # fmt: skip
        else:
            forward, _ = draft_passes(draft, pending)
            first = drafted_chain(passes, forward, drawn=drawn, result="%first") + f"\n{learn}"
        drafted = f"""{first}
%end = pick %first of=leaves
%c = lookup @{STATE} %first at=%end match={MATCH} length={options.tail}"""
        states = (NGRAMS.declaration(STATE),)
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=(draft,), rule="token", states=states
        )


METHOD = Cascade()
