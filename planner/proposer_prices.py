"""What the drafts of a proposer are worth, as far as its acceptance is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Pricer
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.planner.candidates import Candidate
from specplan.planner.comparing import cell_costs, score
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.planner.search import PLAIN, Setting, priced, pricer_of

TOO_DEAR = 1.3
"""Times the best known cost of a load; what costs more at every load is not looked at closer.

Over 16 prompts of 64 tokens, tokens per round are known to about a tenth.
"""


@dataclass(frozen=True)
class ProposerPrices:
    """Prices of plans by who drafts, in a problem.

    Attributes:
        facts: the problem and its device; its profiles are not read.
    """

    facts: ProblemFacts

    @cached_property
    def plain(self) -> float:
        """The objective's score of plain decoding, seconds per token; infinite without a price."""
        return self._least(self._plain)

    def best(self, profile: AcceptanceProfile) -> float:
        """The best score among the plans whose drafts have this acceptance, seconds per token."""
        return self._least(self._candidates(profile))

    def hopeful(self, profiles: Iterable[AcceptanceProfile]) -> frozenset[str]:
        """Proposers that may be worth a closer look.

        Those are left out whose plans cost `TOO_DEAR` times as much as the best of all, plain
        decoding among them, at every load. Who has no price, or nothing that runs, stays.
        """
        costs = {one.key.proposer: self._costs(self._candidates(one)) for one in profiles}
        best = np.min([self._costs(self._plain), *costs.values()], axis=0)
        return frozenset(
            name
            for name, cost in costs.items()
            if not np.isfinite(cost).any() or (cost <= TOO_DEAR * best).any()
        )

    def pass_seconds(self, skips: Skips = NO_SKIPS) -> float:
        """A draft pass over one token, the mean over the loads of the problem.

        Raises:
            UnpricedError: the device cannot say.
        """
        clock = self._pricer.clock
        seconds = self.facts.device.forward_seconds(
            self.facts.target, clock.batch, 1, clock.context, 1, None, skips
        )
        return float(np.mean(seconds.median))

    @cached_property
    def _pricer(self) -> Pricer:
        return pricer_of(self.facts)

    @cached_property
    def _plain(self) -> tuple[Candidate, ...]:
        return tuple(self._of_method(PLAIN, None))

    def _least(self, candidates: Iterable[Candidate]) -> float:
        return min((score(one, self.facts.objective) for one in candidates), default=inf)

    def _costs(self, candidates: Iterable[Candidate]) -> NDArray[np.float64]:
        """The least cost of each load, infinite without candidates."""
        found = np.full(np.shape(self._pricer.clock.batch), inf)
        for one in candidates:
            found = np.minimum(found, cell_costs(one, self.facts.objective))
        return found

    def _candidates(self, profile: AcceptanceProfile) -> Iterator[Candidate]:
        wanted = self.facts.problem.methods
        for name in discover_methods():
            if wanted is None or name in wanted:
                yield from self._of_method(name, profile)

    def _of_method(self, name: str, profile: AcceptanceProfile | None) -> Iterator[Candidate]:
        """The method's admissible candidates for which the profile's proposer drafts."""
        proposer = None if profile is None else profile.key.proposer
        given = {} if profile is None else {profile.key.proposer: profile}
        facts, method = replace(self.facts, profiles=given), discover_methods()[name]
        for family in method.choices(facts):
            for options in family.settings if isinstance(family, Family) else ():
                if method.proposer(options) == proposer:
                    found = priced(facts, self._pricer, Setting(method, family.name, options))
                    if found.admissible:
                        yield found
