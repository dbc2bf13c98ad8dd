"""A hierarchy of drafters for long texts: a draft model, the target with few cached tokens, itself.

TriForce (Sun et al. 2024, arXiv 2404.11912). Where a pass of the target spends its time reading the
cache of a long text, the target drafts for itself through a view of it, the chunks that its latest
query asks for; and since such a pass still reads all weights, a small model with a small cache of
its own drafts for the view. In each of some trips the model drafts a few tokens, and the view
judges them in one pass and adds a token of its own; what it kept is the draft that the target
verifies with the whole cache. A token follows the view's law once it is judged, so that the target
judges it by that law: lossless at every temperature.

The paper's code drafts one token a trip until six are judged, with chunks of 8 in a budget of 4096
for texts of 120,000 tokens and more, and retrieves once for a text; here the view is made anew
after every round. The draft model runs each token that it drafts, the last one too, so that it can
go on from what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import retrieves
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.chains import cache_policy
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BUDGETS = (128, 512)
DRAFT_BUDGET = 256
"""Tokens that the draft model's cache keeps, as many as in the paper."""
TRIPS = ((1, 3), (3, 2))
"""Tokens that the draft model drafts in each trip, and trips."""


@dataclass(frozen=True)
class TriForceOptions(Options):
    """Who drafts for whom.

    Attributes:
        draft: name of the draft model.
        length: tokens that it drafts in each trip.
        trips: passes of the target with few cached tokens, which judge these.
        budget: tokens that the target's view keeps.
    """

    draft: str
    length: int
    trips: int
    budget: int

    @property
    def nodes(self) -> int:
        """Drafted tokens at most."""
        return self.trips * (self.length + 1)

    @property
    def words(self) -> str:
        """`2 times 3 by draft and one by the target with 512 retrieved tokens`."""
        by = self.view.words
        return f"{self.trips} times {self.length} by {self.draft} and one by the target with {by}"

    @property
    def view(self) -> SmallCache:
        """The target with few cached tokens."""
        return SmallCache("target", self.budget, True)


class TriForce(ProfiledByRunning[TriForceOptions]):
    """Pays where texts are so long that reading their cache takes longer than reading weights."""

    name: ClassVar[str] = "triforce"
    summary: ClassVar[str] = "a model drafts for the target with retrieved tokens, that for itself"
    paper: ClassVar[str] = "Sun et al. 2024, arXiv 2404.11912"
    memory: ClassVar[str] = (
        "keys and values of the view's budget and of one pass, and a query per layer; the draft "
        f"model's cache keeps {DRAFT_BUDGET} tokens"
    )
    by_name: ClassVar[bool] = True
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "drafters for drafters"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts for the view",
        "length": "tokens that it drafts in each trip",
        "trips": "passes of the target with few cached tokens",
        "budget": "tokens that its view keeps",
    }

    def settings(self, models: Sequence[str]) -> Iterator[TriForceOptions]:
        """Short and long trips with every draft model and budget."""
        return (
            TriForceOptions(draft, length, trips, budget)
            for draft, (length, trips), budget in product(models, TRIPS, BUDGETS)
        )

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Chunks of the target's cache can be retrieved where no layer has a window."""
        if retrieves(facts.target):
            return None
        return (
            "layers of the target have windows: chunks are retrieved where every layer reads the "
            "whole text"
        )

    def plan(self, facts: ProblemFacts, options: TriForceOptions) -> Plan:
        """Draft and judge a few times on small caches, then verify on the whole one."""
        draft, cache = options.draft, cache_of(options.draft)
        draw, how, judging = "", "", "%i = accept %g target=%m at=%tip"
        if not facts.greedy:
            draw, how = "\n        %u = uniform 1 stream=draft", " how=draw by=%u"
            judging = (
                f"%w = uniform {options.length + 1} stream=view\n    {judging} rule=token by=%w"
            )
        body = f"""%t0 = root
%c = repeat {options.trips} (%t = %t0) {{
    %tip = pick %t of=leaves
    %g = repeat {options.length} (%s = %t) {{
        %f = pick %s of=leaves
        %q = forward {draft} %f cache={cache} pending=2{draw}
        %h = grow %s at=%f logits=%q{how}
        yield %h
    }}
    %last = pick %g of=leaves
    forward {draft} %last cache={cache} gives=[]
    %n = pick %g of=from at=%tip
    %m = forward target %n cache=@part pending=2 write=scratch
    {judging}
    %o = adopt %g %i logits=%m
    yield %o
}}
{judge("%c", options.nodes, rule=None if facts.greedy else "token")}
commit {cache} %e
refresh @part"""
        view = f"@part = cache target view=@kv {cache_policy(options.view)}"
        kept = {draft: cache_policy(SmallCache(draft, DRAFT_BUDGET))}
        return single_round_plan(facts, self.name, (draft,), body, states=(view,), kept=kept)


METHOD = TriForce()
