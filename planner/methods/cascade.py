"""A cascade of drafters: a draft model drafts the first tokens, counted n-grams the last ones.

CS Drafting (Chen et al. 2023, arXiv 2312.11462). Horizontal: tokens far down a chain are seldom
accepted, so that cheaper drafters write them: here the request's own n-grams go on where the draft
model stops, down to its bigrams (their Max-Gram: the longest known run, then shorter ones).
Vertical: no draft model drafts token by token; the n-grams propose, and it judges them in one pass.
The source knows the text as it was when the round began, not the round's own draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment, InterleavedTrace
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.interleaved import (
    drafted_in_stages,
    evidence_of_turns,
    interleaved_drafters,
)
from specplan.planner.templates.plan_text import cache_of, drafted_chain, judge, single_round_plan
from specplan.planner.templates.source_drafts import STATE

NGRAMS = DRAFT_SOURCES["ngram"]
TOKENS = (1, 2, 3, 4, 6)
PROPOSED = (2, 4)
TAILS = (1, 2, 4, 8)
_TAIL = {"tail": Domain(TAILS, "tokens that the n-grams go on with at most")}
HORIZONTAL = {"passes": Domain(TOKENS, "tokens of the draft model, a pass each"), **_TAIL}
VERTICAL = {
    "passes": Domain(TOKENS[:3], "passes of the draft model"),
    "proposed": Domain(PROPOSED, "tokens of the n-grams that each of them judges at most"),
    **_TAIL,
}


@dataclass(frozen=True)
class CascadeOptions(Options):
    """Who drafts how much.

    Attributes:
        draft: name of the draft model.
        passes: its passes.
        proposed: tokens of the n-grams that it judges in each at most; 0 where it drafts alone.
        tail: tokens that the n-grams go on with at most.
    """

    draft: str
    passes: int
    proposed: int
    tail: int

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
    def words(self) -> str:
        """`4 by draft, then up to 2 by n-grams`, `2 times up to 5 by draft, then ...`."""
        each = f" times up to {self.proposed + 1}" if self.proposed else ""
        return f"{self.passes}{each} by {self.draft}, then up to {self.tail} by n-grams"


class Cascade(Method[CascadeOptions]):
    """Pays where a chain is worth going on with, but not a pass of the draft model per token."""

    name: ClassVar[str] = "cascade"
    summary: ClassVar[str] = "a draft model drafts first tokens, n-grams of the text those after"
    paper: ClassVar[str] = "Chen et al. 2023, arXiv 2312.11462"
    acceptance: ClassVar[str] = (
        "the draft model's token, and length of the n-grams' draft, at every position"
    )
    memory: ClassVar[str] = "65,536 runs of tokens of each request, 900 bytes each"
    sources: ClassVar[tuple[str, ...]] = (NGRAMS.word,)
    needs_draft_model: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[CascadeOptions] | Refusal]:
        """Per draft model, the horizontal cascade, and the vertical one with it."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        if not set(self.sources) <= set(facts.problem.sources):
            return [Refusal("any", f'the problem\'s sources leave out "{NGRAMS.word}"')]
        return [family for draft in facts.drafts for family in _families(facts, draft)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model in turns with the n-grams."""
        return interleaved_drafters(facts, NGRAMS.word)

    def plan(self, facts: ProblemFacts, options: CascadeOptions) -> Plan:
        """Count, draft with the model, go on with the n-grams, verify, accept."""
        draft, drawn, pending = options.draft, not facts.greedy, options.tail + 2
        match, learn = print_atom(NGRAMS.match), f"update @{STATE} %t0 last={NGRAMS.last}"
        if options.proposed:
            first = drafted_in_stages(
                draft, f"@{STATE}", match, options.passes, options.proposed,
                learn=learn, result="first", drawn=drawn, pending=pending,
            )  # fmt: skip
        else:
            forward = f"{draft} %f cache={cache_of(draft)} pending={pending}"
            first = drafted_chain(options.passes, forward, drawn=drawn, result="first")
            first = f"{first}\n{learn}"
        body = f"""{first}
%end = pick %first of=leaves
%c = lookup @{STATE} %first at=%end match={match} length={options.tail}
{judge("%c", options.nodes, rule=None if facts.greedy else "token")}
commit {cache_of(draft)} %e"""
        states = (NGRAMS.declaration(STATE),)
        return single_round_plan(facts, self.name, (draft,), body, states=states)

    def drafter(self, facts: ProblemFacts, options: CascadeOptions) -> Drafter | None:
        """The draft model in turns with the n-grams."""
        return Interleaved(options.draft, NGRAMS.word)


def _families(facts: ProblemFacts, draft: str) -> Iterator[Family[CascadeOptions] | Refusal]:
    horizontal, both = f"horizontal by {draft}", f"vertical and horizontal by {draft}"
    turns = evidence_of_turns(facts, draft, NGRAMS.word)
    if isinstance(turns, str):
        yield from (Refusal(horizontal, turns), Refusal(both, turns))
        return
    yield Family(horizontal, HORIZONTAL, _settings(turns, draft, TOKENS, (0,)))
    yield Family(both, VERTICAL, _settings(turns, draft, TOKENS[:3], PROPOSED))


def _settings(
    turns: InterleavedTrace, draft: str, passes: Sequence[int], proposed: Sequence[int]
) -> tuple[CascadeOptions, ...]:
    every = (
        CascadeOptions(draft, number, judged, tail)
        for number in passes
        for judged in proposed
        for tail in TAILS
    )
    return tuple(options for options in every if turns.problem_of(options.segments) is None)


METHOD = Cascade()
