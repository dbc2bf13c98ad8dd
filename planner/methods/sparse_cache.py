"""A drafter that reads a small part of a long text's cache; the target verifies with all of it.

At long contexts and large batches a pass spends its time reading the cache, so that a drafter with
a fixed budget of cached tokens costs a small part of a pass of the target, the more so the longer
the text (MagicDec, arXiv 2408.11049; TriForce, arXiv 2404.11912). The target itself drafts through
a view of its own cache, which keeps the first tokens and the latest ones, or the chunks that its
latest query asks for (TriForce's retrieval); a draft model's own cache keeps the first and the
latest. Who drafts, its budget and what is accepted under it are named by an acceptance profile,
`small_cache(target, 512)`, and `small_cache(target, 512, retrieved)` for retrieved chunks, which is
measured where a problem's `methods` name this one.

Keys of a view stay turned by the positions that they have in the text; MagicDec's and TriForce's
copies are as much. A view is made anew after every round, which is priced; TriForce retrieves once
for a text. Its hierarchy, in which a draft model drafts for the view, is the method `triforce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone, retrieves
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.chains import chain_plan

LENGTHS = tuple(range(1, 9))
BUDGETS = (64, 128, 256, 512)
"""Tokens that a drafter's cache keeps, where acceptance is measured."""
RETRIEVED_BUDGETS = (128, 512)


@dataclass(frozen=True)
class SparseCacheOptions(Options):
    """Who drafts with how much of a cache, and how far.

    Attributes:
        drafter: `target` or the name of a draft model.
        budget: tokens that the drafter's cache keeps, sinks included.
        length: drafted tokens.
        retrieved: it keeps the chunks that the latest query asks for.
    """

    drafter: str
    budget: int
    length: int
    retrieved: bool = False

    @property
    def words(self) -> str:
        """`chain of 3 by target with 512 cached tokens`, or retrieved ones."""
        return f"chain of {self.length} by {self.drafter} with {_drafter(self).words}"


class SparseCache(Method[SparseCacheOptions]):
    """Drafting with a part of the cache."""

    name: ClassVar[str] = "sparse_cache"
    summary: ClassVar[str] = "the target or a draft model drafts a chain, reading few cached tokens"
    paper: ClassVar[str] = "Chen et al. 2024, arXiv 2408.11049; Sun et al. 2024, arXiv 2404.11912"
    acceptance: ClassVar[str] = (
        "length of the chain drafted anew at every place (the target), rank of the accepted child "
        "where every token reads its own window (a draft model)"
    )
    memory: ClassVar[str] = (
        "keys and values of the budget, and of one pass; of retrieved chunks a query per layer"
    )
    by_name: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[SparseCacheOptions] | Refusal]:
        """Per drafter and budget whose acceptance is known, chains of 1 to 8 tokens."""
        families = [_family(one) for one in facts.profiles if isinstance(one, SmallCache)]
        return families or [Refusal("any", _UNKNOWN)]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The target and every draft model that runs by itself, with every budget."""
        roles = ("target", *models_alone(facts.shapes))
        every = [SmallCache(role, budget) for role in roles for budget in BUDGETS]
        if retrieves(facts.target):
            every += [SmallCache("target", budget, True) for budget in RETRIEVED_BUDGETS]
        return tuple(every)

    def plan(self, facts: ProblemFacts, options: SparseCacheOptions) -> Plan:
        """Draft one token at a time on the small cache, then verify on the whole one."""
        return chain_plan(facts, self.name, _drafter(options), options.length)

    def drafter(self, facts: ProblemFacts, options: SparseCacheOptions) -> Drafter | None:
        """The drafter with this budget."""
        return _drafter(options)


def _drafter(options: SparseCacheOptions) -> SmallCache:
    return SmallCache(options.drafter, options.budget, options.retrieved)


_UNKNOWN = (
    "no drafter with few cached tokens is known: give a ready profile as "
    "acceptance.small_cache(target, 512) (the target that reads 512 tokens of its cache; "
    "small_cache(target, 512, retrieved) for retrieved ones) or of a draft model; "
    "where methods name sparse_cache, they are measured"
)


def _family(drafter: SmallCache) -> Family[SparseCacheOptions]:
    role, budget, retrieved = drafter.model, drafter.budget, drafter.retrieved
    domains = {
        "drafter": Domain((role,), "who drafts"),
        "budget": Domain((budget,), "tokens that its cache keeps"),
        "length": Domain(LENGTHS, "drafted tokens"),
        "retrieved": Domain((retrieved,), "it keeps the chunks that the latest query asks for"),
    }
    settings = tuple(SparseCacheOptions(role, budget, length, retrieved) for length in LENGTHS)
    return Family(f"chain by {drafter}", domains, settings)


METHOD = SparseCache()
