"""A cascade of drafters: a draft model drafts the first tokens, counted n-grams the last ones.

CS Drafting (Chen et al. 2023, arXiv 2312.11462). Horizontal: tokens far down a chain are seldom
accepted, so that cheaper drafters write them: here the request's own n-grams continue where the
draft model stops, down to its bigrams (their Max-Gram: the longest known run, then shorter ones).
Vertical: no draft model drafts token by token; the n-grams propose, and it judges them in one pass.
The source knows the text as it was when the round began, not the round's own draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.several_drafters import (
    drafted_in_turns,
    evidence_of_turns,
    interleaved_drafters,
)
from specplan.planner.templates.source_drafts import STATE

NGRAMS = DRAFT_SOURCES["ngram"]
MATCH = print_atom(NGRAMS.match)
TAILS = (1, 2, 4, 8)


@dataclass(frozen=True)
class CascadeOptions(Options):
    """Who drafts how much."""

    reads = "{passes}{each} by {draft}, then up to {tail} by n-grams"

    draft: DraftName
    passes: Annotated[int, Option("passes of the draft model")]
    proposed: Annotated[
        int, Option("tokens of the n-grams that each judges at most, 0 where it drafts alone")
    ]
    tail: Annotated[int, Option("tokens that the n-grams go on with at most")]

    @property
    def segments(self) -> tuple[DraftSegment, ...]:
        """Who drafts which stretch."""
        judged = (
            DraftSegment("judged", self.proposed) if self.proposed else DraftSegment("model", 1)
        )
        return (*(judged,) * self.passes, DraftSegment("source", self.tail))

    @property
    def nodes(self) -> int:
        """Drafted tokens at most."""
        return sum(one.most for one in self.segments)

    @property
    def each(self) -> str:
        """What a pass gives, where it is not one token."""
        return f" times up to {self.proposed + 1}" if self.proposed else ""


class Cascade(Method[CascadeOptions]):
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

    def choices(self, facts: ProblemFacts) -> Sequence[Family[CascadeOptions] | Refusal]:
        """Per draft model, the horizontal cascade, and the vertical one with it."""
        reason = self.missing_source(facts)
        if not facts.drafts:
            reason = "models.drafts names no draft model"
        if reason is not None:
            return [Refusal("any", reason)]
        return [family for draft in facts.drafts for family in _families(facts, draft)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model in turns with the n-grams."""
        return interleaved_drafters(facts, NGRAMS.word)

    def plan(self, facts: ProblemFacts, options: CascadeOptions) -> Plan:
        """Count, draft with the model, continue with the n-grams, verify, accept."""
        draft, drawn, pending = options.draft, not facts.greedy, options.tail + 2
        learn = f"update @{STATE} %t0 last={NGRAMS.last}"
        if options.proposed:
            first = drafted_in_turns(
                draft,
                f"@{STATE} match={MATCH}",
                options.passes,
                options.proposed,
                drawn=drawn,
                result="%first",
                learn=learn,
                pending=pending,
            )
        else:
            forward, _ = draft_passes(draft, pending)
            first = drafted_chain(options.passes, forward, drawn=drawn, result="%first")
            first = f"{first}\n{learn}"
        drafted = f"""{first}
%end = pick %first of=leaves
%c = lookup @{STATE} %first at=%end match={MATCH} length={options.tail}"""
        return draft_and_verify(
            facts,
            self,
            drafted,
            options.nodes,
            models=(draft,),
            rule="token",
            states=(NGRAMS.declaration(STATE),),
        )

    def drafter(self, facts: ProblemFacts, options: CascadeOptions) -> Drafter | None:
        """The draft model in turns with the n-grams."""
        return Interleaved(options.draft, NGRAMS.word)


def _families(facts: ProblemFacts, draft: str) -> Iterator[Family[CascadeOptions] | Refusal]:
    turns = evidence_of_turns(facts, draft, NGRAMS.word)
    for name, passes, proposed in (
        (f"horizontal by {draft}", (1, 2, 3, 4, 6), (0,)),
        (f"vertical and horizontal by {draft}", (1, 2, 3), (2, 4)),
    ):
        if isinstance(turns, str):
            yield Refusal(name, turns)
            continue
        every = (CascadeOptions(draft, *one) for one in product(passes, proposed, TAILS))
        yield Family.of(name, (one for one in every if turns.problem_of(one.segments) is None))


METHOD = Cascade()
