"""A drafter that reads a small part of a long text's cache; the target verifies with all of it.

At long contexts and large batches a pass spends its time reading the cache, so that a drafter with
a fixed budget of cached tokens costs a small part of a pass of the target, the more so the longer
the text (MagicDec, arXiv 2408.11049; TriForce, arXiv 2404.11912). The target itself drafts through
a view of its own cache, which keeps the first tokens and the latest ones; a draft model keeps such
a cache of its own. The budget and what is accepted under it are named by an acceptance
profile, `target~512`, `draft~512`, which is measured where a problem's `methods` name this one.

The view's tokens keep the positions that they have in the text; MagicDec's copy is as much. It is
made anew after every round, which is priced as one launch. TriForce's other policy, chunks that are
retrieved by the query, and its hierarchy of drafters are not offered: no backend here runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.plan import Plan
from specplan.planner.chain_drafters import chain_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.proposer import Proposer, models_alone

LENGTHS = tuple(range(1, 9))
BUDGETS = (64, 128, 256, 512)
"""Tokens that a drafter's cache keeps, where acceptance is measured."""


@dataclass(frozen=True)
class SparseCacheOptions(Options):
    """Who drafts with how much of a cache, and how far.

    Attributes:
        drafter: `target` or the name of a draft model.
        budget: tokens that the drafter's cache keeps, sinks included.
        length: drafted tokens.
    """

    drafter: str
    budget: int
    length: int

    @property
    def words(self) -> str:
        """`chain of 3 by target with 512 cached tokens`."""
        return f"chain of {self.length} by {self.drafter} with {self.budget} cached tokens"


class SparseCache(Method[SparseCacheOptions]):
    """Drafting with a part of the cache."""

    name: ClassVar[str] = "sparse_cache"
    summary: ClassVar[str] = "the target or a draft model drafts a chain, reading few cached tokens"
    paper: ClassVar[str] = "Chen et al. 2024, arXiv 2408.11049; Sun et al. 2024, arXiv 2404.11912"
    acceptance: ClassVar[str] = (
        "length of the chain drafted anew at every place (the target), rank of the accepted child "
        "where every token reads its own window (a draft model)"
    )
    memory: ClassVar[str] = "keys and values of the budget, and of one pass"
    by_name: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[SparseCacheOptions] | Refusal]:
        """Per drafter and budget whose acceptance is known, chains of 1 to 8 tokens."""
        named = (Proposer.read(name) for name in facts.profiles)
        families = [_family(found) for found in named if found.budget is not None]
        return families or [Refusal("any", _UNKNOWN)]

    def proposers(self, shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
        """The target and every draft model that runs by itself, with every budget."""
        roles = ("target", *models_alone(shapes))
        return tuple(Proposer(role, budget=b).name for role in roles for b in BUDGETS)

    def plan(self, facts: ProblemFacts, options: SparseCacheOptions) -> Plan:
        """Draft one token at a time on the small cache, then verify on the whole one."""
        return chain_plan(facts, self.name, _drafter(options), options.length)

    def proposer(self, options: SparseCacheOptions) -> str | None:
        """The drafter with this budget."""
        return _drafter(options).name


def _drafter(options: SparseCacheOptions) -> Proposer:
    return Proposer(options.drafter, budget=options.budget)


_UNKNOWN = (
    "no drafter with few cached tokens is known: give a ready profile as acceptance.target~512 "
    "(the target that reads 512 tokens of its cache), or of a draft model; where methods name "
    "sparse_cache, they are measured"
)


def _family(proposer: Proposer) -> Family[SparseCacheOptions]:
    assert proposer.budget is not None
    role, budget = proposer.role, proposer.budget
    domains = {
        "drafter": Domain((role,), "who drafts"),
        "budget": Domain((budget,), "tokens that its cache keeps"),
        "length": Domain(LENGTHS, "drafted tokens"),
    }
    settings = tuple(SparseCacheOptions(role, budget, length) for length in LENGTHS)
    return Family(f"chain by {proposer.name}", domains, settings)


METHOD = SparseCache()
