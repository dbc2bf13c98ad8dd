"""The search: every choice of every method is priced, and the best by the objective is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.cells import grid
from specplan.cost_models.estimate import Pricer
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.rules.verify import check_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.correcting import corrected
from specplan.planner.method import Family, Method, Options, discover_methods
from specplan.planner.problem.schema import NO_BACKEND
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import choose, speedup
from specplan.planner.search.composing import best_of_each, best_schedule
from specplan.planner.search.limits import nothing_admissible, with_price
from specplan.planner.search.objectives import Load
from specplan.planner.search.pareto import Point, pareto_front
from specplan.planner.search.support import unsupported
from specplan.planner.search.uncertainty import Confidence, confidence
from specplan.planner.serving.at_load import AtLoad, at_load

PLAIN = "autoregressive"
"""The method that is always a candidate, and that every other one must beat."""

REPORT_VERSION = 1


@dataclass(frozen=True)
class OnBackend:
    """What was found on one of several backends.

    Attributes:
        backend: its name.
        chosen: the best plan there; None where there is none.
        refusal: why there is none; empty where there is one.
    """

    backend: str
    chosen: Candidate | None = None
    refusal: str = ""


@dataclass(frozen=True)
class SearchResult:
    """What the search found.

    Attributes:
        facts: the problem and what was known of it.
        candidates: every setting with its price or refusal, and every refused family.
        chosen: the best of them.
        plain: autoregressive decoding, whether chosen, beaten or refused by a limit.
        left_out: loads, as batch and prompt length, that do not fit on the device with any plan.
        backends: where there were several to choose among, what was found on each.
    """

    facts: ProblemFacts
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    plain: Candidate
    left_out: tuple[tuple[int, int], ...] = ()
    backends: tuple[OnBackend, ...] = ()

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
    choices = list(_choices(facts))
    pricer, left_out = _fitting(facts, pricer_of(facts), choices)
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
            remedy="Measure the device for these models with `specplan profile device`.",
        )
    if plain.unsupported is not None:
        raise MissingCapabilityError(
            f"plain decoding does not run ({plain.unsupported})",
            where="backend",
            remedy=f'Take another backend, or "{NO_BACKEND}" to plan without running.',
        )
    schedule = best_schedule(facts, pricer, candidates, plain)
    if schedule is not None:
        candidates.append(schedule)
    chosen = choose(candidates, plain, facts.objective)
    if chosen is None:
        raise nothing_admissible(facts, candidates)
    assert chosen.plan is not None, "what is admissible has a plan"
    check_plan(chosen.plan)
    return SearchResult(facts, tuple(candidates), chosen, plain, left_out)


@dataclass(frozen=True)
class Setting:
    """One setting to be priced."""

    method: Method[Any]
    family: str
    options: Options


def _choices(facts: ProblemFacts) -> Iterator[Setting | Candidate]:
    """Every setting of every method, plain decoding first; refused families as candidates."""
    allowed = facts.problem.methods
    methods = discover_methods()
    names = [PLAIN, *(name for name in methods if name != PLAIN)]
    for name in names:
        method = methods[name]
        if allowed is not None and name not in allowed and name != PLAIN:
            reason = "the problem's methods leave it out"
            yield Candidate(name, "any", {}, "any", refusal=reason)
            continue
        for family in method.choices(facts):
            if isinstance(family, Family):
                for options in _settings(facts, name, family):
                    yield Setting(method, family.name, options)
            else:
                yield Candidate(name, family.name, {}, "any", refusal=family.reason)


def settings_by(facts: ProblemFacts, drafter: Drafter | None) -> Iterator[Setting]:
    """Settings that the problem chooses from, those that a drafter drafts in, or none (None)."""
    for choice in _choices(facts):
        if not isinstance(choice, Setting):
            continue
        if choice.method.drafter(facts, choice.options) == drafter:
            yield choice


def _settings(facts: ProblemFacts, method: str, family: Family[Any]) -> Iterator[Any]:
    """Those that are tried, and those beside them that were measured."""
    yield from family.settings
    for point in facts.measured.points(method, family.name):
        options = None if family.at is None else family.at(point)
        if options is not None and options not in family.settings:
            yield options


def pricer_of(facts: ProblemFacts) -> Pricer:
    """Prices requests at every batch size: of every prompt length, or of a trace's mean lengths."""
    requests, lengths = facts.requests, facts.problem.workload.lengths
    outputs = round(fmean(request.output_tokens for request in requests))
    batch, prompt = grid(facts.batch_sizes, lengths or [round(facts.mean_prompt_tokens)])
    longest = None
    if not lengths:
        longest = max(request.prompt_tokens for request in requests), facts.longest_text
    return Pricer(facts.device, facts.shapes, batch, prompt, outputs, longest)


def _fitting(
    facts: ProblemFacts, pricer: Pricer, choices: Sequence[Setting | Candidate]
) -> tuple[Pricer, tuple[tuple[int, int], ...]]:
    """The pricer without the loads that plain decoding has no memory for, and those loads.

    Only of a table of prompt lengths are some left out, and never all.
    """
    first = choices[0]
    if facts.problem.workload.prompt_lengths is None or not isinstance(first, Setting):
        return pricer, ()
    needed = pricer.memory(first.method.plan(facts, first.options)).total
    fits = np.asarray(needed) <= facts.memory_bytes
    if fits.all() or not fits.any():
        return pricer, ()
    loads = zip(pricer.batch[~fits].tolist(), pricer.prompt_tokens[~fits].tolist(), strict=True)
    left_out = tuple(loads)
    return without_loads(pricer, left_out), left_out


def without_loads(pricer: Pricer, left_out: Sequence[tuple[int, int]]) -> Pricer:
    """The pricer without some loads, given as batch and prompt length."""
    if not left_out:
        return pricer
    loads = zip(pricer.batch.tolist(), pricer.prompt_tokens.tolist(), strict=True)
    kept = np.array([load not in left_out for load in loads])
    return replace(pricer, batch=pricer.batch[kept], prompt_tokens=pricer.prompt_tokens[kept])


def priced(facts: ProblemFacts, pricer: Pricer, setting: Setting) -> Candidate:
    """A setting with its price, or with the reason why it has none."""
    method, options = setting.method, setting.options
    plan = method.plan(facts, options)
    drafter = method.drafter(facts, options)
    candidate = Candidate(
        method=method.name,
        family=setting.family,
        options=options.as_dict(),
        words=options.words,
        drafter=drafter,
        plan=plan,
    )
    price = pricer.estimate(plan, None if drafter is None else facts.profiles[drafter])
    if isinstance(price, Unpriced):
        return replace(candidate, refusal=str(price))
    return with_price(facts, replace(candidate, unsupported=unsupported(facts, plan)), price)
