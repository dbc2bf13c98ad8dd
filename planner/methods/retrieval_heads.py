"""The target drafts with most heads reading few cached tokens; it verifies with all of them.

DuoAttention (Xiao et al. 2024, arXiv 2410.10819) tells heads that look up distant text (retrieval
heads) from those that make do with the first tokens and the latest ones (streaming heads), by gates
that it trains. It decodes so, and loses what streaming heads no longer see. Here a pass like that
drafts, and a pass of the target as it is verifies, so that nothing is lost. Both read one cache:
drafting takes no memory of its own, and nothing is copied when a round ends.

Gates are given as a file (`gates` of the problem) or measured by `specplan profile gates`. Budgets
and shares of retrieval heads are settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.gates import read_gates, retrieval_heads
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.chains import chain_plan

LENGTHS = tuple(range(1, 9))
BUDGETS = (64, 256)
"""Tokens that a streaming head reads, where acceptance is measured."""
SHARES = (0.25, 0.5)
"""Shares of retrieval heads: the paper's for multi-head and for grouped-query attention."""


@dataclass(frozen=True)
class RetrievalHeadsOptions(Options):
    """Which heads read the whole text, how much the others read, and how far is drafted."""

    reads = "chain of {length} by the target with {cache}"

    heads: Annotated[
        tuple[str, ...], Option("key/value heads of the target that read the whole text")
    ]
    budget: Annotated[int, Option("tokens that the others read, the first 16 included")]
    length: Annotated[int, Option("drafted tokens")]

    @property
    def small_cache(self) -> SmallCache:
        """The target that reads so."""
        return SmallCache("target", self.budget, "by_head", self.heads)

    @property
    def cache(self) -> str:
        """What it reads: `256 cached tokens, the whole text in 12 heads`."""
        return self.small_cache.words


class RetrievalHeads(Method[RetrievalHeadsOptions]):
    """Pays where texts are long and few heads look far back."""

    summary = "the target drafts a chain, most of its heads reading few cached tokens"
    paper = "Xiao et al. 2024, arXiv 2410.10819"
    differs = (
        "Heads stream while the target drafts and its whole pass verifies, so that the output is "
        "its own, where the paper decodes with streaming heads for good; gates are given, or are "
        "measured shares of attention, and not trained here."
    )
    acceptance = "length of the chain drafted anew at every place"
    memory = "nothing beside the target's own cache"
    by_name = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[RetrievalHeadsOptions] | Refusal]:
        """Per set of heads and budget whose acceptance is known, chains of 1 to 8 tokens."""
        known = [
            Family.of(
                f"chain by {len(x.heads)} heads and {x.budget} tokens",
                (RetrievalHeadsOptions(x.heads, x.budget, n) for n in LENGTHS),
            )
            for x in facts.profiles
            if isinstance(x, SmallCache) and x.how == "by_head"
        ]
        if known:
            return known
        gated = self.drafters(facts)
        return [Refusal("any", facts.missing_profile(gated[0]) if gated else _UNKNOWN)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The target with each share of retrieval heads and each budget, where gates are given."""
        if facts.problem.gates is None:
            return ()
        gates = read_gates(facts.problem.gates, facts.target)
        sets = dict.fromkeys(retrieval_heads(gates, share) for share in SHARES)
        return tuple(SmallCache("target", n, "by_head", one) for one in sets for n in BUDGETS)

    def plan(self, facts: ProblemFacts, options: RetrievalHeadsOptions) -> Plan:
        """Draft one token at a time into scratch, then run all heads over the whole text."""
        return chain_plan(facts, self, options.small_cache, options.length)

    def drafter(self, facts: ProblemFacts, options: RetrievalHeadsOptions) -> Drafter | None:
        """The target that reads so."""
        return options.small_cache


_UNKNOWN = Reason(
    "no retrieval heads are known: give their gates as gates: FILE (measured with `specplan "
    "profile gates`, or those that DuoAttention publishes), or a ready profile as "
    "acceptance.small_cache(target, 256, by_head, [head.0.1])",
    Cause.OPT_IN,
)
METHOD = RetrievalHeads()
