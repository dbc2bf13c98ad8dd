"""What drafting would gain at an acceptance that nobody has measured yet.

Every answer is a search of its own over the plans in which one drafter drafts, with one acceptance
probability for all positions (Leviathan et al. 2022): plans, ties and limits are those of
`specplan optimize` with `acceptance: {drafter: 0.7}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.fits.assumed import assume_rate
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.intervals import Interval
from specplan.planner.drafters.parts import stores_of
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.correcting import corrected
from specplan.planner.search.candidates import Candidate, judged
from specplan.planner.search.comparing import gain_margin, gains
from specplan.planner.search.composing import best_of_each
from specplan.planner.search.settings import (
    Setting,
    fitting_pricer,
    priced,
    pricer_of,
    settings_by,
)

ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Conditional acceptance of a draft token that an undecided answer is tabulated at."""
_GRID = tuple(step / 20.0 for step in range(1, 20))
"""Where the acceptance from which a drafter pays is looked for; between them it is interpolated."""
MOST_ACCEPTANCE = _GRID[-1]
NO_MEMORY = "does not fit"
"""The words of a row whose models have no place beside each other."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WhatIfRow:
    """The best plan of one drafter at one load, if its draft tokens were accepted so often.

    Attributes:
        drafter: who drafts.
        batch: requests decoded together.
        prompt_tokens: length of a prompt.
        acceptance: P(a draft token is accepted | those before it were); None for the profile that
            the problem has.
        draft_tokens: that the best plan verifies per step (K); 0 where no drafting pays.
        gain: speed of a request over no speculation, prefill included, or of decoding alone under
            the objective tpot; 1 where no drafting pays.
        gain_interval: the same with what the times leave open between the two.
        pays_from: the least acceptance at which drafting pays here; None where it never does.
        words: the best plan in words.
        assumed: what the profile that the problem has assumes, in words; None where it was
            measured, and where `acceptance` is a number.
    """

    drafter: str
    batch: int
    prompt_tokens: int
    acceptance: float | None
    draft_tokens: int
    gain: float
    gain_interval: Interval
    pays_from: float | None
    words: str
    assumed: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def what_if(
    facts: ProblemFacts,
    drafters: Sequence[Drafter],
    acceptances: Sequence[float | None] = ACCEPTANCES,
    *,
    crossings: bool = True,
) -> tuple[WhatIfRow, ...]:
    """The best plans by drafter, load and acceptance.

    Args:
        facts: the problem and what is known of it.
        drafters: who may draft; without rows where no method of the problem drafts with one.
        acceptances: P(a draft token is accepted | those before it were); None for the profile in
            `facts`.
        crossings: look for the acceptance from which drafting pays, which takes most of the time;
            else `pays_from` is None.

    Returns:
        Rows by drafter, then load, then acceptance.
    """
    scan = _Scan(facts, crossings)
    return tuple(row for drafter in drafters for row in scan.rows(drafter, acceptances))


def best_gain(facts: ProblemFacts, drafter: Drafter) -> float:
    """Speed of the fastest plan in which a drafter drafts, over no speculation.

    Geometric mean over the loads; below 1 where all are slower, and whatever the times leave open.

    Args:
        facts: the problem, with the drafter's profile.
        drafter: who drafts.

    Raises:
        UnpricedError: no plan with it has a price.
    """
    scan = _Scan(facts, crossings=False)
    plain = scan._plain.estimate
    candidates = scan._candidates(drafter, facts.profiles[drafter])
    speeds = [
        gains(one.estimate, plain, facts.objective).mean
        for one in candidates
        if one.estimate and plain
    ]
    if not speeds:
        raise UnpricedError(f"no plan with {drafter} has a price here")
    return float(np.exp(np.log(np.max(np.broadcast_arrays(*speeds), axis=0)).mean()))


def unmeasured(facts: ProblemFacts) -> tuple[Drafter, ...]:
    """The models and heads that the problem lists, where nothing is known of any acceptance.

    Empty as soon as one profile is there: then something was compared.
    """
    if facts.profiles:
        return ()
    return listed_drafters(facts)


def listed_drafters(facts: ProblemFacts) -> tuple[Drafter, ...]:
    """The draft models and heads of the problem, and the target's own modules where it has any."""
    stores = stores_of(facts.drafters)
    models = [Model(one.name) for one in facts.problem.models.drafts if one.name not in stores]
    if "mtp" in facts.problem.sources and facts.modules:
        models.append(Model("mtp"))
    return tuple(models)


@dataclass(frozen=True)
class _Scan:
    facts: ProblemFacts
    crossings: bool

    def rows(self, drafter: Drafter, acceptances: Sequence[float | None]) -> Iterator[WhatIfRow]:
        """All rows of a drafter; none where no plan with it has a price."""
        margins: dict[float, Floats] = {}

        def margin(acceptance: float) -> Floats:
            if acceptance not in margins:
                candidates = self._candidates(drafter, self._assumed(drafter, acceptance))
                margins[acceptance] = self._margin(candidates)
            return margins[acceptance]

        wanted: dict[float | None, tuple[Candidate | None, ...]] = {}
        for acceptance in acceptances:
            profile = self._profile(drafter, acceptance)
            candidates = [] if profile is None else self._candidates(drafter, profile)
            if profile is None or not candidates:
                continue
            if acceptance is not None:
                margins[acceptance] = self._margin(candidates)
            facts = replace(self.facts, profiles={drafter: profile})
            wanted[acceptance] = best_of_each(facts, [self._plain, *candidates], self._plain)
        if not wanted:
            return
        for cell, base in enumerate(self._plain.estimates):
            pays_from = _crossing(margin, cell) if self.crossings else None
            for acceptance, best in wanted.items():
                yield self._row(drafter, acceptance, best[cell], cell, base, pays_from)

    def _row(
        self,
        drafter: Drafter,
        acceptance: float | None,
        best: Candidate | None,
        cell: int,
        base: Estimate,
        pays_from: float | None,
    ) -> WhatIfRow:
        own = self.facts.profiles.get(drafter)
        tree = None if best is None or best is self._plain else judged(best)
        drafts = best is not None and tree is not None
        objective = self.facts.objective
        gain = (
            gains(best.estimates[cell], base, objective) if best and drafts else Interval.exact(1.0)
        )
        words = NO_MEMORY if best is None else best.words if drafts else "no speculation"
        return WhatIfRow(
            drafter=str(drafter),
            batch=int(base.batch),
            prompt_tokens=int(base.prompt_tokens),
            acceptance=acceptance,
            draft_tokens=0 if tree is None else tree.nodes,
            gain=float(gain.mean),
            gain_interval=Interval(float(gain.mean), float(gain.low), float(gain.high)),
            pays_from=pays_from,
            words=words,
            assumed=own.assumption if own is not None and acceptance is None else None,
        )

    def _profile(self, drafter: Drafter, acceptance: float | None) -> AcceptanceProfile | None:
        if acceptance is None:
            return self.facts.profiles.get(drafter)
        return self._assumed(drafter, acceptance)

    def _assumed(self, drafter: Drafter, acceptance: float) -> AcceptanceProfile:
        key = acceptance_key(self.facts.problem, self.facts.shapes, drafter)
        return assume_rate(acceptance, key)

    def _candidates(self, drafter: Drafter, profile: AcceptanceProfile) -> list[Candidate]:
        """Those in which the drafter drafts, with a price and a backend that runs them."""
        facts = replace(self.facts, profiles={drafter: profile})
        every = [priced(facts, self._pricer, one) for one in settings_by(facts, drafter)]
        able = [one for one in every if one.priced and one.unsupported is None]
        return corrected(facts, [self._plain, *able])[1:]

    def _margin(self, candidates: Sequence[Candidate]) -> Floats:
        """Above 0 where some candidate beats no speculation by more than the error, [cells]."""
        plain = self._plain.estimate
        assert plain is not None, "no speculation has a price"
        margins = [
            gain_margin(gains(c.estimate, plain, self.facts.objective))
            for c in candidates
            if c.estimate
        ]
        best: Floats = np.max(np.broadcast_arrays(*margins, plain.batch * 0.0 - np.inf), axis=0)
        return best

    @cached_property
    def _setting(self) -> Setting:
        """Decoding without speculation."""
        return next(settings_by(replace(self.facts, profiles={}), None))

    @cached_property
    def _pricer(self) -> Pricer:
        return fitting_pricer(self.facts, pricer_of(self.facts), [self._setting])[0]

    @cached_property
    def _plain(self) -> Candidate:
        return priced(self.facts, self._pricer, self._setting)


def _crossing(margin: Callable[[float], Floats], cell: int) -> float | None:
    """The least acceptance at which the margin of a cell is above 0; None where it never is.

    The margin grows with the acceptance, so that halving the grid finds the place.
    """
    below, above = -1, len(_GRID)
    while above - below > 1:
        middle = (below + above) // 2
        pays = np.atleast_1d(margin(_GRID[middle]))[cell] > 0.0
        below, above = (below, middle) if pays else (middle, above)
    if above == len(_GRID):
        return None
    if above == 0:
        return _GRID[0]
    low, high = (float(np.atleast_1d(margin(_GRID[at]))[cell]) for at in (below, above))
    return _GRID[below] + (_GRID[above] - _GRID[below]) * low / (low - high)
