"""Heads write several tokens at once while they are jointly sure of them; nothing is verified.

DynaMo (Tuli et al. 2024, arXiv 2405.00888): the target gives the next token, and heads on the same
state the ones after it; their joint probability is taken to be the product of the heads' own. Where
it falls below a bar, as many tokens are written as stay above (dynamic back-off), the target's own
token at least. Lossy: no pass of the target judges what the heads wrote, it only goes on from it.

The bar is on the heads' part of the joint probability. The paper multiplies the joint probability
by how often tokens occur together (co-occurrence weighted masking).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import NO_HEADS_AHEAD, heads_ahead
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import (
    FEATURES,
    ahead_pass,
    cache_of,
    features_of,
    single_round_plan,
    uncached_of,
    uniforms,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BARS = (0.3, 0.6, 0.9)


@dataclass(frozen=True)
class UnverifiedHeadsOptions(Options):
    """Which heads write, and how sure they must be."""

    reads = "{depth} tokens by {draft} above {bar}"

    draft: DraftName
    depth: Annotated[int, Option("tokens behind the target's own, at most")]
    bar: Annotated[float, Option("least joint probability of what the heads write")]


class UnverifiedHeads(ProfiledByRunning[UnverifiedHeadsOptions]):
    """One pass of the target for several tokens, with no column more than plain decoding has."""

    summary = "heads write tokens of which they are jointly sure, without verification"
    paper = "DynaMo: Tuli et al. 2024, arXiv 2405.00888"
    differs = (
        "The joint probability is that of the heads alone, without the weights of co-occurrence "
        "and the adaptive threshold, and each head's best token or draw is taken, where the paper "
        "draws from the joint distribution."
    )
    law = "free"
    memory = "the hidden states of one layer"
    family = "tokens above a bar"

    def run_settings(self, facts: ProblemFacts) -> Iterator[UnverifiedHeadsOptions]:
        """Every set of heads with every number of them and bar."""
        for draft, most in heads_ahead(facts.drafters).items():
            for depth in range(1, most + 1):
                yield from (UnverifiedHeadsOptions(draft, depth, bar) for bar in BARS)

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """There have to be heads."""
        return None if heads_ahead(facts.drafters) else NO_HEADS_AHEAD

    def plan(self, facts: ProblemFacts, options: UnverifiedHeadsOptions) -> Plan:
        """The target's token, those of the heads, and as many of them as stay above the bar."""
        draft, depth = options.draft, options.depth
        uncached = uncached_of(facts, (draft,))
        first, how = uniforms(facts, 1)
        later, how_later = uniforms(facts, 1, "%d", offset=1)
        caches = ["@kv", FEATURES, *([] if uncached else [cache_of(draft)])]
        body = f"""%t0 = root
%l = forward target %t0 cache=@kv pending={depth + 2} keep={FEATURES}
{first}
%t1 = grow %t0 at=%t0 logits=%l {how}
%f1 = pick %t1 of=newest
%x = {ahead_pass(facts, draft, depth).over("%f1")}
%w = repeat {depth} (%t = %t1) {{
  %f = pick %t of=newest
  {later}
  %n = grow %t at=%f logits=%x {how_later}
  yield %n
}}
%p = measure %f1 value(best=1)
%bar = compute "{options.bar} * p" p=%p
%b = pick %w of=all above=%bar
%c = prune %w to=%b
%a = accept %c rule=all
%e = emit %a
""" + "\n".join(f"commit {state} %e" for state in caches)
        track = f"{FEATURES} = track target layer={features_of(facts.drafters[draft])}"
        return single_round_plan(facts, self, (draft,), body, states=(track,), uncached=uncached)


METHOD = UnverifiedHeads()
