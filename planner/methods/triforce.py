"""A hierarchy of drafters for long texts: a draft model, the target with few cached tokens, itself.

TriForce (Sun et al. 2024, arXiv 2404.11912). Where a pass of the target spends its time reading the
cache of a long text, the target drafts for itself through a view of it, the chunks that its latest
query asks for; and since such a pass still reads all weights, a small model with a small cache of
its own drafts for the view. In each trip the model drafts a few tokens, and the view judges them in
one pass and adds a token of its own; the accepted ones are the draft that the target verifies with
the whole cache. A token follows the view's distribution once it is judged, so that the target
judges it by that: lossless at every temperature.

The paper's code drafts one token a trip until six are judged, with chunks of 8 in a budget of 4096
for texts of 120,000 tokens and more. The draft model runs each token that it drafts, the last one
too, so that it can continue from the accepted ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import retrieves
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.chains import cache_policy
from specplan.planner.templates.plan_text import cache_of, draft_and_verify, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

DRAFT_BUDGET = 256
"""Tokens that the draft model's cache keeps, as many as in the paper."""


@dataclass(frozen=True)
class TriForceOptions(Options):
    """Who drafts for whom."""

    reads = "{trips} times {length} by {draft} and one by the target with {cache}"

    draft: DraftName
    length: Annotated[int, Option("tokens that it drafts in each trip")]
    trips: Annotated[int, Option("passes of the target with few cached tokens")]
    budget: Annotated[int, Option("tokens that its view keeps")]

    @property
    def nodes(self) -> int:
        """Drafted tokens at most."""
        return self.trips * (self.length + 1)

    @property
    def view(self) -> SmallCache:
        """The target with few cached tokens."""
        return SmallCache("target", self.budget, "retrieved")

    @property
    def cache(self) -> str:
        """What the target reads: `512 retrieved tokens`."""
        return self.view.words


class TriForce(ProfiledByRunning[TriForceOptions]):
    """Pays where texts are so long that reading their cache takes longer than reading weights."""

    summary = "a model drafts for the target with retrieved tokens, that for itself"
    paper = "Sun et al. 2024, arXiv 2404.11912"
    differs = (
        "The view is rebuilt after every round, where the paper retrieves once for a text; the "
        "cache is not offloaded to the host (layers of the target may be: `placement`)."
    )
    memory = (
        "keys and values of the view's budget and of one pass, and a query per layer; the draft "
        f"model's cache keeps {DRAFT_BUDGET} tokens"
    )
    family = "drafters for drafters"
    shapes = tuple((*trips, budget) for trips in ((1, 3), (3, 2)) for budget in (128, 512))

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
        draw, how = uniforms(facts, 1)
        numbers, rule = uniforms(facts, options.length + 1, "%w", stream="view", use="rule=token")
        drafted = f"""%t0 = root
%c = repeat {options.trips} (%t = %t0) {{
    %tip = pick %t of=leaves
    %g = repeat {options.length} (%s = %t) {{
        %f = pick %s of=leaves
        %q = forward {draft} %f cache={cache} pending=2
        {draw}
        %h = grow %s at=%f logits=%q {how}
        yield %h
    }}
    %last = pick %g of=leaves
    forward {draft} %last cache={cache} gives=[]
    %n = pick %g of=from at=%tip
    %m = forward target %n cache=@part pending=2 write=scratch
    {numbers}
    %i = accept %g target=%m at=%tip {rule}
    %o = adopt %g %i logits=%m
    yield %o
}}"""
        return draft_and_verify(
            facts,
            self,
            drafted,
            options.nodes,
            models=(draft,),
            rule="token",
            after="refresh @part",
            states=(f"@part = cache target view=@kv {cache_policy(options.view)}",),
            policies={draft: cache_policy(SmallCache(draft, DRAFT_BUDGET))},
        )


METHOD = TriForce()
