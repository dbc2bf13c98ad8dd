"""What the drafts of a drafter are worth, as far as its acceptance is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Pricer
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import cell_costs, score
from specplan.planner.search.settings import PLAIN, Setting, priced, pricer_of, settings_by

TOO_DEAR = 1.3
"""Times the best known cost of a load; what costs more at every load is not looked at closer.

Over 16 prompts of 64 tokens, tokens per round are known to about a tenth.
"""


@dataclass(frozen=True)
class DrafterPrices:
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

    def promising(self, profiles: Iterable[AcceptanceProfile]) -> frozenset[Drafter]:
        """Drafters that may be worth a closer look.

        Those are left out whose plans cost `TOO_DEAR` times as much as the best of all, plain
        decoding among them, at every load. Who has no price, or nothing that runs, stays.
        """
        costs = {one.key.drafter: self._costs(self._candidates(one)) for one in profiles}
        best = np.min([self._costs(self._plain), *costs.values()], axis=0)
        return frozenset(
            drafter
            for drafter, cost in costs.items()
            if not np.isfinite(cost).any() or (cost <= TOO_DEAR * best).any()
        )

    def pass_seconds(self, skips: Skips = NO_SKIPS) -> float:
        """A draft pass over one token, the mean over the loads of the problem.

        Raises:
            UnpricedError: the device cannot say.
        """
        rounds = self._pricer.round_pricer
        seconds = self.facts.device.forward_seconds(
            self.facts.target, rounds.batch, 1, rounds.context, 1, None, skips
        )
        return float(np.mean(seconds.median))

    @cached_property
    def _pricer(self) -> Pricer:
        return pricer_of(self.facts)

    @cached_property
    def _plain(self) -> tuple[Candidate, ...]:
        facts = replace(self.facts, profiles={})
        plain = (one for one in settings_by(facts, None) if one.method.name == PLAIN)
        return tuple(self._admissible(facts, plain))

    def _least(self, candidates: Iterable[Candidate]) -> float:
        return min((score(one, self.facts.objective) for one in candidates), default=inf)

    def _costs(self, candidates: Iterable[Candidate]) -> NDArray[np.float64]:
        """The least cost of each load, infinite without candidates."""
        costs = np.full(np.shape(self._pricer.round_pricer.batch), inf)
        for one in candidates:
            costs = np.minimum(costs, cell_costs(one, self.facts.objective))
        return costs

    def _candidates(self, profile: AcceptanceProfile) -> Iterator[Candidate]:
        """The admissible ones for which the profile's drafter drafts."""
        facts = replace(self.facts, profiles={profile.key.drafter: profile})
        return self._admissible(facts, settings_by(facts, profile.key.drafter))

    def _admissible(self, facts: ProblemFacts, settings: Iterable[Setting]) -> Iterator[Candidate]:
        candidates = (priced(facts, self._pricer, setting) for setting in settings)
        return (candidate for candidate in candidates if candidate.admissible)
