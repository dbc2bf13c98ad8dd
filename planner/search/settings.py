"""Settings that a problem chooses from, and their prices at its loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.cells import grid
from specplan.cost_models.estimate import Pricer
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.ir.errors import UsageError
from specplan.planner.drafters.parts import head_family
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Options, discover_methods
from specplan.planner.reasons import Cause, Reason, cause_of
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.limits import unsupported, with_price
from specplan.planner.search.objectives import Load
from specplan.planner.serving.pools import pool_of

PLAIN = "autoregressive"
"""The method that is always a candidate, and that every other one must beat."""


@dataclass(frozen=True)
class Setting:
    """One setting to be priced."""

    method: Method[Any]
    family: str
    options: Options


def choices_of(facts: ProblemFacts) -> Iterator[Setting | Candidate]:
    """Every setting of every method, plain decoding first; refused families as candidates."""
    allowed = facts.problem.methods
    methods = discover_methods()
    names = [PLAIN, *(name for name in methods if name != PLAIN)]
    for name in names:
        method = methods[name]
        if allowed is not None and name not in allowed and name != PLAIN:
            reason = Reason("the problem's methods leave it out", Cause.EXCLUDED)
            yield Candidate(name, "any", {}, "any", refusal=reason)
            continue
        for family in method.choices(facts):
            if isinstance(family, Family):
                for options in _settings(facts, name, family):
                    yield Setting(method, family.name, options)
            else:
                yield Candidate(name, family.name, {}, "any", refusal=family.reason)


def check_named_methods(facts: ProblemFacts) -> None:
    """Refuse a problem that names a method of which no setting can be tried.

    Raises:
        UsageError: for another reason than an acceptance that is not known; says which.
    """
    methods = discover_methods()
    for index, name in enumerate(facts.problem.methods or ()):
        families = methods[name].choices(facts)
        reasons = [one.reason for one in families if not isinstance(one, Family)]
        if len(reasons) < len(families) or not reasons:
            continue
        if not any(cause_of(reason) is Cause.ACCEPTANCE for reason in reasons):
            raise UsageError(
                f'"{name}" cannot be tried: {reasons[0]}',
                where=f"methods.{index}",
                remedy="Give what it needs, or take it out of methods.",
            )


def settings_by(facts: ProblemFacts, drafter: Drafter | None) -> Iterator[Setting]:
    """Settings that the problem chooses from, those that a drafter drafts in, or none (None)."""
    for choice in choices_of(facts):
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
    batch, prompt = grid(facts.batch_sizes, facts.prompt_lengths)
    longest = None
    if not lengths:
        longest = max(request.prompt_tokens for request in requests), facts.longest_text
    cached = facts.problem.workload.cached_prefix
    pool = pool_of(facts.problem, facts.target, int(np.max(prompt)))
    return Pricer(
        facts.device, facts.shapes, batch, prompt, outputs, longest, cached, facts.runtime, pool
    )


def fitting_pricer(
    facts: ProblemFacts, pricer: Pricer, choices: Sequence[Setting | Candidate]
) -> tuple[Pricer, tuple[tuple[int, int], ...]]:
    """The pricer without the loads that plain decoding has no memory for, and those loads.

    Of a trace none is left out, nor at a load that is to be borne, and never all.
    """
    first = choices[0]
    borne = isinstance(facts.objective, Load) or not facts.problem.workload.lengths
    if borne or not isinstance(first, Setting):
        return pricer, ()
    needed = pricer.memory(first.method.written(facts, first.options)).total
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
    remaining = np.array([load not in left_out for load in loads])
    batch, prompt = pricer.batch[remaining], pricer.prompt_tokens[remaining]
    return replace(pricer, batch=batch, prompt_tokens=prompt)


def priced(facts: ProblemFacts, pricer: Pricer, setting: Setting) -> Candidate:
    """A setting with its price, or with the reason why it has none."""
    method, options = setting.method, setting.options
    plan = method.written(facts, options)
    drafter = method.drafter(facts, options)
    candidate = Candidate(
        method=method.name,
        family=setting.family,
        options=options.as_dict(),
        words=options.words,
        drafter=drafter,
        head=head_family(facts.drafters, drafter),
        plan=plan,
    )
    price = pricer.estimate(plan, None if drafter is None else facts.profiles[drafter])
    if isinstance(price, Unpriced):
        return replace(candidate, refusal=str(price))
    return with_price(facts, replace(candidate, unsupported=unsupported(facts, plan)), price)
