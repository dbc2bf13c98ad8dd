"""Settings that a search did not try: any point of a family's domains, and which ones to try.

A family whose settings are only some of those there are says what stands at any point of its
domains (`Family.at`). Where to look among them, a tree-structured Parzen estimator proposes
(Bergstra et al. 2011, by optuna), from the scores of all settings that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.estimate import Pricer
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, discover_methods
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.search import SearchResult
from specplan.planner.search.settings import Setting, priced, pricer_of, without_loads

Point = Mapping[str, Any]
Scored = tuple[Point, float]


@dataclass(frozen=True)
class OpenSettings:
    """The open families of a problem, and prices at any of their points.

    Attributes:
        facts: the problem.
        pricer: of its loads.
        families: by method and name.
    """

    facts: ProblemFacts
    pricer: Pricer
    families: Mapping[tuple[str, str], tuple[Method[Any], Family[Any]]]

    @classmethod
    def of(cls, result: SearchResult) -> OpenSettings:
        """Those of the methods that a search had candidates of."""
        facts, families = result.facts, {}
        used = {candidate.method for candidate in result.candidates if candidate.priced}
        for name, method in discover_methods().items():
            for family in method.choices(facts) if name in used else ():
                if isinstance(family, Family) and family.at is not None:
                    families[name, family.name] = (method, family)
        return cls(facts, without_loads(pricer_of(facts), result.left_out), families)

    def point(self, candidate: Candidate) -> dict[str, Any]:
        """Where a candidate lies in the domains of its family; empty where that is not open."""
        known = self.families.get((candidate.method, candidate.family))
        return {} if known is None else {name: candidate.options[name] for name in known[1].domains}

    def at(self, method: str, family: str, point: Point) -> Candidate | None:
        """The candidate at a point, with its price; None where there is none."""
        known = self.families.get((method, family))
        if known is None or known[1].at is None:
            return None
        options = known[1].at(point)
        if options is None:
            return None
        return priced(self.facts, self.pricer, Setting(known[0], family, options))

    def propose(
        self,
        method: str,
        family: str,
        scored: Sequence[Scored],
        score: Callable[[Candidate], float | None],
        *,
        asks: int,
        seed: int,
    ) -> list[Candidate]:
        """New settings of a family, best first; the same arguments give the same ones.

        Args:
            method: its name.
            family: one of `families`.
            scored: settings that are known, each with what is to be made small.
            score: the same of a candidate that is new; None where it cannot take part.
            asks: points that are asked for.
            seed: of the sampler.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        domains = _distributions(self.families[method, family][1])
        for at, known in scored:
            study.add_trial(
                optuna.trial.create_trial(params=dict(at), distributions=domains, value=known)
            )
        tried = [dict(point) for point, _ in scored]
        scored_candidates: list[tuple[float, Candidate]] = []
        for _ in range(asks):
            trial = study.ask(fixed_distributions=domains)
            point = dict(trial.params)
            new = None if point in tried else self.at(method, family, point)
            value = None if new is None or not new.priced else score(new)
            if new is None or value is None:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                continue
            study.tell(trial, value)
            tried.append(point)
            scored_candidates.append((value, new))
        return [candidate for _, candidate in sorted(scored_candidates, key=lambda pair: pair[0])]


def _distributions(family: Family[Any]) -> dict[str, Any]:
    """What optuna may suggest: whole numbers of a range, or one of the values."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(min(domain.values), max(domain.values))
        if domain.whole
        else CategoricalDistribution(domain.values)
        for name, domain in family.domains.items()
    }
