"""A draft model's chain, lengthened by phrases that a pool knows, several side by side.

Ouroboros (Zhao et al. 2024, arXiv 2402.13720): the target verifies far more tokens in a pass than a
draft model can write in time, so that phrases from a pool are hung on the end of the draft, several
of them, at no pass of the draft model. The pool learns runs of tokens from the text, and from each
verification what the target would have written at every place of the draft, the rejected ones too:
there its choices are often right, only too early.

Kept of the paper are the lengthened draft and the phrases out of verification; phrases of the
request's own text stand for those that it hands from request to request. Left out is that the draft
model itself writes phrase by phrase (in `cascade` and `staged` others propose to it). Phrases are
certain proposals, judged at a temperature above 0 by the recursive rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, drafted_chain, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

SHAPES = ((2, 1, 2), (2, 2, 3), (3, 3, 3), (4, 3, 4))
"""Tokens that are drafted, phrases that are hung on them, and tokens of each."""
CAPACITY = 16384


@dataclass(frozen=True)
class OuroborosOptions(Options):
    """What is drafted, and how far it goes on.

    Attributes:
        draft: name of the draft model.
        length: tokens that it drafts.
        phrases: that are hung on the end.
        tokens: of a phrase.
    """

    draft: str
    length: int
    phrases: int
    tokens: int

    @property
    def nodes(self) -> int:
        """Verified tokens."""
        return self.length + self.phrases * self.tokens

    @property
    def words(self) -> str:
        """`chain of 3 by draft, then 3 phrases of 4`."""
        return (
            f"chain of {self.length} by {self.draft}, then {self.phrases} phrases of {self.tokens}"
        )


class Ouroboros(ProfiledByRunning[OuroborosOptions]):
    """Pays where outputs repeat phrases, and the target verifies many tokens as fast as a few."""

    name: ClassVar[str] = "ouroboros"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "a draft model's chain, lengthened by phrases that a pool has learned"
    paper: ClassVar[str] = "Zhao et al. 2024, arXiv 2402.13720"
    memory: ClassVar[str] = "16,384 phrases of each request, 600 bytes each"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "chain and phrases"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "length": "drafted tokens",
        "phrases": "that are hung on the end, side by side",
        "tokens": "of a phrase",
    }

    def settings(self, models: Sequence[str]) -> Iterator[OuroborosOptions]:
        """A few shapes for every draft model."""
        return (OuroborosOptions(draft, *shape) for draft, shape in product(models, SHAPES))

    def plan(self, facts: ProblemFacts, options: OuroborosOptions) -> Plan:
        """Draft, hang phrases on the end, verify, accept, learn what the target would have said."""
        draft, order = options.draft, options.tokens + 1
        forward = f"{draft} %f cache={cache_of(draft)} pending={options.tokens + 2}"
        body = f"""{drafted_chain(options.length, forward, drawn=not facts.greedy, result="d")}
update @phrases %t0 last={order}
%end = pick %d of=leaves
%c = lookup @phrases %d at=%end match=[1, 1] children={options.phrases} length={options.tokens}
{judge("%c", options.nodes, rule=None if facts.greedy else "recursive")}
commit {cache_of(draft)} %e
%said = relabel %d logits=%l
update @phrases %said last={options.length + 1}"""
        kind = f"phrases(order={order}, width={2 * options.phrases}, capacity={CAPACITY})"
        states = [f"@phrases = source {kind}"]
        return single_round_plan(facts, self.name, (draft,), body, states=states)


METHOD = Ouroboros()
