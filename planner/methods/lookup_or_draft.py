"""Drafts copied from the text where it has a long match, and a model's or a head's chain elsewhere.

The hybrid of SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975): copies cost nothing and are
long where a text repeats itself, and a drafter is better everywhere else. A short match is worth
less than a drafter's chain, so a copy needs a longer one here than in prompt lookup. The drafter's
first pass runs in every round, which keeps its cache up to date; its further passes run only
without a match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import indent
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT, Fallback
from specplan.cost_models.acceptance.evidence.fallback import FallbackTrace
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.parts import heads_by_token, models_alone
from specplan.planner.drafters.profiles import FALLBACK_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.plan_text import (
    draft_and_verify,
    draft_passes,
    features_of,
    head_passes,
)
from specplan.planner.templates.static_trees import layers_text

COPIES = (4, 6, 8, 12)
LENGTHS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class LookupOrDraftOptions(Options):
    """Who drafts without a match, and how far each drafts."""

    reads = "copies of up to {copied}, without a match chain of {length} by {draft}"

    draft: DraftName
    copied: Annotated[int, Option("tokens that are copied at most")]
    length: Annotated[int, Option("tokens drafted without a match")]


class LookupOrDraft(Method[LookupOrDraftOptions]):
    """Pays where parts of an output repeat the text, and a drafter pays in the others."""

    summary = "drafts copied from the text where it has a long match, else by a model or head"
    paper = "Oliaro et al. 2024, arXiv 2411.04975"
    differs = (
        "Copies follow the longest suffix of the request's own text; the paper scores "
        "continuations of all outputs so far, and drafts below a score."
    )
    acceptance = "length of the copy, and of the drafter's chain, at every position"
    sources = ("prompt_lookup",)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[LookupOrDraftOptions] | Refusal]:
        """Chains of both by every drafter, as far as they were compared; drawn ones are as long."""
        reason, drafters = self.missing_source(facts), self.drafters(facts)
        if not drafters:
            reason = "models.drafts names no draft model, and no head that drafts token by token"
        if reason is not None:
            return [Refusal("any", reason)]
        return [self._family(facts, drafter) for drafter in drafters]

    def _family(
        self, facts: ProblemFacts, drafter: Fallback
    ) -> Family[LookupOrDraftOptions] | Refusal:
        name = f"copies, or chains by {drafter.model}"
        trace = facts.evidence(drafter, FallbackTrace, "copies with a model behind them")
        if isinstance(trace, str):
            return Refusal(name, trace)
        lengths: Iterable[tuple[int, int]] = product(COPIES, LENGTHS)
        if not facts.greedy:  # the last of a round's numbers is the bonus's: as many for both
            lengths = zip(LENGTHS, LENGTHS, strict=True)
        every = (LookupOrDraftOptions(drafter.model, *one) for one in lengths)
        return Family.of(name, (x for x in every if not trace.problem_of(x.copied, x.length)))

    def drafters(self, facts: ProblemFacts) -> tuple[Fallback, ...]:
        """The text with every draft model, and every head that drafts token by token."""
        names = (*models_alone(facts.shapes), *heads_by_token(facts.drafters))
        return tuple(Fallback(TEXT.name, name) for name in names)

    def drafter(self, facts: ProblemFacts, options: LookupOrDraftOptions) -> Fallback:
        """The text with the drafter behind it."""
        return Fallback(TEXT.name, options.draft)

    def plan(self, facts: ProblemFacts, options: LookupOrDraftOptions) -> Plan:
        """Look up; without a match draft; verify, accept."""
        draft, copied, length = options.draft, options.copied, options.length
        pending = max(copied, length) + 1
        head = facts.drafters.get(draft)
        if head is None:
            drawn, passes = not facts.greedy, draft_passes(draft, pending)
        else:
            drawn, passes = False, head_passes(facts, draft, pending)
        match = facts.profiles[self.drafter(facts, options)].match or FALLBACK_MATCH
        chain = layers_text(length, passes, drawn=drawn, result="%d")
        root, first, further = chain.split("\n", 2)
        drafted = f"""{root}
{first}
%m = lookup @text %t0 at=%t0 match={print_atom(match)} length={copied}
%k = measure %m count
%miss = compute "k < 1" k=%k
%c = when %miss otherwise=[%m] {{
{indent(further, "    ")}
    yield %d
}}"""
        return draft_and_verify(
            facts, self, drafted, max(copied, length), models=(draft,), rule="token",
            features=features_of(head), recurrent=head is not None,
        )  # fmt: skip


METHOD = LookupOrDraft()
