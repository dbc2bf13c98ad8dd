"""The search: every choice of every method is priced, and the best by the objective is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from specplan.cost_models.intervals import Interval
from specplan.cost_models.quality.formats import FormatLoss
from specplan.ir.capabilities import Capabilities
from specplan.ir.errors import InfeasibleError, MissingCapabilityError, UsageError
from specplan.ir.rules.verify import check_plan
from specplan.planner.drafters.sharing import with_copies
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.correcting import corrected
from specplan.planner.problem.schema import NO_BACKEND
from specplan.planner.quality.limit import within_quality
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import TIE, Point, choose, pareto_front, score, speedup
from specplan.planner.search.composing import best_of_each, best_schedule
from specplan.planner.search.limits import nothing_admissible
from specplan.planner.search.objectives import Load
from specplan.planner.search.settings import (
    PLAIN,
    Setting,
    choices_of,
    fitting_pricer,
    priced,
    pricer_of,
)
from specplan.planner.search.uncertainty import Confidence, confidence
from specplan.planner.search.what_if import WhatIfRow, unmeasured, what_if
from specplan.planner.serving.at_load import AtLoad, at_load

REPORT_VERSION = 1


@dataclass(frozen=True)
class OnBackend:
    """The outcome on one of several backends, or in one of several formats.

    Attributes:
        backend: its name, and the formats behind it (`Problem.label`).
        chosen: the best plan there; None where there is none.
        refusal: why there is none; empty where there is one.
        loss: of the target's number format against the first; None for that, and where it is not
            measured.
    """

    backend: str
    chosen: Candidate | None = None
    refusal: str = ""
    loss: FormatLoss | None = None


@dataclass(frozen=True)
class SearchResult:
    """The candidates of a search and its choice.

    Attributes:
        facts: the problem and what was known of it.
        candidates: every setting with its price or refusal, and every refused family.
        chosen: the best of them.
        plain: autoregressive decoding, whether chosen, beaten or refused by a limit.
        left_out: loads, as batch and prompt length, that do not fit on the device with any plan.
        backends: where there were several to choose among, the outcome on each.
        what_if: where the acceptance of none of the problem's drafters is known, what they would
            gain if it were; the search is undecided then, and `chosen` is no speculation.
    """

    facts: ProblemFacts
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    plain: Candidate
    left_out: tuple[tuple[int, int], ...] = ()
    backends: tuple[OnBackend, ...] = ()
    what_if: tuple[WhatIfRow, ...] = ()

    @cached_property
    def best_of_each(self) -> tuple[Candidate | None, ...]:
        """The best candidate of every load alone, in the order of the estimates."""
        return best_of_each(self.facts, self.candidates, self.plain)

    @cached_property
    def pareto(self) -> tuple[Point, ...]:
        """What no plan beats both in speed for a user and in speed of the device."""
        return pareto_front(self.candidates)

    @cached_property
    def confidence(self) -> Confidence:
        """How sure the choice is, and what to measure next."""
        facts = self.facts
        return confidence(self.chosen, self.candidates, facts.profiles, facts.objective)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Drafters of unknown acceptance, where nothing could be compared; empty if decided."""
        return tuple(dict.fromkeys(row.drafter for row in self.what_if))

    @property
    def assumed(self) -> dict[str, str]:
        """What was assumed of acceptance, in words, by who drafts."""
        profiles = self.facts.profiles.items()
        return {str(name): one.assumption for name, one in profiles if one.assumption is not None}

    @property
    def speedup(self) -> Interval:
        """How many times as fast as plain decoding the chosen plan is estimated to be.

        At a load that one of the two does not serve as a whole: as many requests served.
        """
        return speedup(self.chosen, self.plain, self.facts.objective)

    @property
    def at_load(self) -> AtLoad | None:
        """What the chosen plan serves of the load; None for other objectives than goodput."""
        return self.served_by(self.chosen)

    def served_by(self, candidate: Candidate) -> AtLoad | None:
        """What a candidate serves of the load; None without a load or a price."""
        load = self.facts.objective
        if not isinstance(load, Load) or candidate.estimate is None:
            return None
        return at_load(load, candidate.estimate)

    def as_dict(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        device = self.facts.device
        return {
            "schema_version": REPORT_VERSION,
            "problem": self.facts.problem.model_dump(mode="json"),
            "device": {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
            },
            "left_out": [list(load) for load in self.left_out],
            "chosen": self._index(self.chosen),
            "plain": self._index(self.plain),
            "candidates": [
                candidate.as_dict() | {"at_load": self._at_load_data(candidate)}
                for candidate in self.candidates
            ],
        }

    def _at_load_data(self, candidate: Candidate) -> dict[str, Any] | None:
        served = self.served_by(candidate)
        return None if served is None else served.as_dict()

    def _index(self, wanted: Candidate) -> int:
        return next(i for i, candidate in enumerate(self.candidates) if candidate is wanted)


def search(
    facts: ProblemFacts, on_progress: Callable[[int, int], None] | None = None
) -> SearchResult:
    """Price every choice of every method and choose.

    Where devices share the target, draft models may run in copies on them (`with_copies`), and
    recurrent states may be replayed (`replaying`); the facts of the result have what is faster.

    Args:
        facts: the problem and what is known of it.
        on_progress: called with (settings priced, settings in all).

    Returns:
        All candidates and the chosen one.

    Raises:
        UsageError: when plain decoding has no price, because the device does not know the target.
        InfeasibleError: when limits refuse every candidate; names the tightest.
        UsageError: when the chosen plan breaks a rule of the language: a method's mistake.
        MissingCapabilityError: when the backend does not even run plain decoding.
    """
    best: SearchResult | None = None
    error: InfeasibleError | None = None
    for change in (None, with_copies, replaying):
        base = facts if best is None else best.facts
        changed = base if change is None else change(base)
        if changed is None or (best is not None and best.what_if):
            continue
        try:
            result = _search(changed, on_progress)
        except InfeasibleError as missed:
            error = error or missed
            continue
        if best is None or _better(result, best):
            best = result
    if best is None:
        assert error is not None, "nothing else ends a search without a plan"
        raise error
    return best


def _better(one: SearchResult, other: SearchResult) -> bool:
    """Whether a search chose what is faster beyond a tie."""
    scores = [score(result.chosen, other.facts.objective) for result in (one, other)]
    return scores[0] * (1.0 + TIE) < scores[1]


def replaying(facts: ProblemFacts) -> ProblemFacts | None:
    """The facts with recurrent states that are replayed; None where there are none, or none may be.

    Engines store a state for each drafted token.
    """
    able = facts.capabilities
    if isinstance(able, Capabilities):
        runs = "replay" in able.limits.get(("cache", "rollback"), ("replay",))
    else:
        runs = able is None
    if not runs or not any(shape.state_elements for shape in facts.shapes.values()):
        return None
    return replace(facts, replays=True, own_rounds={})


def _search(facts: ProblemFacts, on_progress: Callable[[int, int], None] | None) -> SearchResult:
    choices = list(choices_of(facts))
    pricer, left_out = fitting_pricer(facts, pricer_of(facts), choices)
    candidates: list[Candidate] = []
    for done, choice in enumerate(choices):
        if isinstance(choice, Setting):
            candidates.append(priced(facts, pricer, choice))
        else:
            candidates.append(choice)
        if on_progress is not None:
            on_progress(done + 1, len(choices))
    candidates = corrected(facts, candidates)
    plain = next(candidate for candidate in candidates if candidate.method == PLAIN)
    if not plain.priced:
        raise UsageError(
            f"plain decoding has no price ({plain.refusal})",
            where="device",
            remedy="Mend that, or measure these models on it with `specplan profile device`.",
        )
    if plain.unsupported is not None:
        raise MissingCapabilityError(
            f"plain decoding does not run ({plain.unsupported})",
            where="backend",
            remedy=f'Take another backend, or "{NO_BACKEND}" to plan without running.',
        )
    candidates = within_quality(facts, candidates)
    exact = [one for one in candidates if one.loss is None or not facts.problem.limits.quality]
    schedule = best_schedule(facts, pricer, exact, plain)
    if schedule is not None:
        candidates.append(schedule)
    chosen = choose(candidates, plain, facts.objective)
    rows = what_if(facts, unmeasured(facts)) if chosen is None or chosen is plain else ()
    if chosen is None:
        if not any(row.draft_tokens for row in rows):
            raise nothing_admissible(facts, candidates)
        chosen = plain
    assert chosen.plan is not None, "what is admissible has a plan"
    check_plan(chosen.plan)
    return SearchResult(facts, tuple(candidates), chosen, plain, left_out, what_if=rows)
