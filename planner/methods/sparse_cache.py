"""A drafter that reads a small part of a long text's cache; the target verifies with all of it.

At long contexts and large batches a pass spends its time reading the cache, so that a drafter with
a fixed budget of cached tokens costs a small part of a pass of the target, the more so the longer
the text (MagicDec, arXiv 2408.11049; TriForce, arXiv 2404.11912). The target itself drafts through
a view of its own cache, which keeps the first tokens and the latest ones, or the chunks that its
latest query asks for (TriForce's retrieval), or what the last tokens of the prompt attend to most
(SnapKV's selection, arXiv 2404.14469, with which MagicDec drafts); a draft model's own cache keeps
the first and the latest. Who drafts, its budget and what is accepted under it are named by an
acceptance profile, `small_cache(target, 512)`, `small_cache(target, 512, retrieved)` for retrieved
chunks and `small_cache(target, 512, observed)` for SnapKV's, which is measured where a problem's
`methods` name this one.

Keys of a view keep the rotary positions that they have in the text, as MagicDec's and TriForce's
copies do. TriForce's hierarchy, in which a draft model drafts for the view, is the method
`triforce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, Retained, SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone, retrieves
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.chains import chain_plan

LENGTHS = tuple(range(1, 9))
BUDGETS = (64, 128, 256, 512)
"""Tokens that a drafter's cache keeps, where acceptance is measured."""
CHOSEN_BUDGETS = (128, 512)


@dataclass(frozen=True)
class SparseCacheOptions(Options):
    """Who drafts with how much of a cache, and how far."""

    reads = "chain of {length} by {drafter} with {cache}"

    drafter: Annotated[str, Option("who drafts: the target or a draft model")]
    budget: Annotated[int, Option("tokens that its cache keeps, sinks included")]
    length: Annotated[int, Option("drafted tokens")]
    how: Annotated[Retained, Option("which tokens these are")] = "recent"

    @property
    def small_cache(self) -> SmallCache:
        """The drafter with this budget."""
        return SmallCache(self.drafter, self.budget, self.how)

    @property
    def cache(self) -> str:
        """What it reads: `512 cached tokens`."""
        return self.small_cache.words


class SparseCache(Method[SparseCacheOptions]):
    """Drafting with a part of the cache."""

    summary = "the target or a draft model drafts a chain, reading few cached tokens"
    paper = (
        "Chen et al. 2024, arXiv 2408.11049; Sun et al. 2024, arXiv 2404.11912; selection by the "
        "prompt's last tokens: Li et al. 2024, arXiv 2404.14469"
    )
    differs = (
        "A view is rebuilt after every round, where TriForce retrieves once for a text; output "
        "takes the place of what SnapKV selects of the prompt, up to half of the budget, where "
        "MagicDec adds it."
    )
    acceptance = (
        "length of the chain drafted anew at every place (the target), rank of the accepted child "
        "where every token reads its own window (a draft model)"
    )
    memory = (
        "keys and values of the budget, and of one pass; of retrieved chunks a query per layer, of "
        "what the prompt attends to its places"
    )
    by_name = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[SparseCacheOptions] | Refusal]:
        """Per drafter and budget whose acceptance is known, chains of 1 to 8 tokens."""
        return [
            Family.of(
                f"chain by {x}",
                (SparseCacheOptions(x.model, x.budget, n, x.how) for n in LENGTHS),
            )
            for x in facts.profiles
            if isinstance(x, SmallCache) and x.how != "by_head"
        ] or [Refusal("any", _UNKNOWN)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The target and every draft model that runs by itself, with every budget."""
        roles = ("target", *models_alone(facts.shapes))
        every = [SmallCache(role, budget) for role in roles for budget in BUDGETS]
        if retrieves(facts.target):
            chosen: tuple[Retained, ...] = ("retrieved", "observed")
            every += [SmallCache("target", n, how) for how in chosen for n in CHOSEN_BUDGETS]
        return tuple(every)

    def plan(self, facts: ProblemFacts, options: SparseCacheOptions) -> Plan:
        """Draft one token at a time on the small cache, then verify on the whole one."""
        return chain_plan(facts, self, options.small_cache, options.length)

    def drafter(self, facts: ProblemFacts, options: SparseCacheOptions) -> Drafter | None:
        """The drafter with this budget."""
        return options.small_cache


_UNKNOWN = Reason(
    "no drafter with few cached tokens is known: give a ready profile as "
    "acceptance.small_cache(target, 512) (the target that reads 512 tokens of its cache; "
    "small_cache(target, 512, retrieved) and (target, 512, observed) for chosen ones) or of a "
    "draft model; "
    "where methods name sparse_cache, they are measured",
    Cause.OPT_IN,
)
METHOD = SparseCache()
