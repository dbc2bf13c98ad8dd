"""Speed against loss: every plan whose loss is known, the best of them, and what a loss buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.intervals import Interval
from specplan.cost_models.quality.certificate import Certificate, Tested
from specplan.planner.explain.numbers import interval_data
from specplan.planner.facts import ProblemFacts
from specplan.planner.quality.limit import changes_output, measure_name, sequences_of
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import speedup

_LEAST_STEP = 1e-9


@dataclass(frozen=True)
class Offer:
    """A plan with its speed and what it loses.

    Attributes:
        candidate: the plan.
        speedup: over plain decoding.
        bound: its loss is at most this; 0 by proof where it keeps the target's law.
        best: no other plan is faster at a bound that is no higher.
    """

    candidate: Candidate
    speedup: Interval
    bound: float
    best: bool


def offers(
    facts: ProblemFacts, candidates: Sequence[Candidate], plain: Candidate
) -> tuple[Offer, ...]:
    """The fastest lossless plan and every plan whose loss was measured, the fastest first."""

    def speed(one: Candidate) -> Interval:
        return speedup(one, plain, facts.objective)

    exact = [one for one in candidates if one.admissible and not changes_output(one)]
    lossless = max(exact, key=lambda one: speed(one).mean, default=plain)
    lossy = [one for one in candidates if one.loss is not None and one.unsupported is None]
    rows = [(lossless, 0.0), *((one, one.loss.bound) for one in lossy if one.loss is not None)]
    points = sorted(((speed(one), one, bound) for one, bound in rows), key=lambda p: -p[0].mean)
    offered, least = [], float("inf")
    for gain, one, bound in points:
        offered.append(Offer(one, gain, bound, best=bound < least - _LEAST_STEP))
        least = min(least, bound)
    return tuple(offered)


def front_data(offered: Sequence[Offer]) -> list[dict[str, Any]]:
    """The offers, ready for JSON."""
    return [
        {
            "plan": one.candidate.words,
            **one.candidate.named,
            "options": dict(one.candidate.options),
            "key": rounds_key(one.candidate.plan) if one.candidate.plan else "",
            "speedup": one.speedup.mean,
            "interval": interval_data(one.speedup),
            "bound": one.bound,
            "mean": 0.0 if one.candidate.loss is None else one.candidate.loss.mean,
            "keeps": one.candidate.loss is None or one.candidate.admissible,
            "best": one.best,
        }
        for one in offered
    ]


def quality_data(
    facts: ProblemFacts, candidates: Sequence[Candidate], plain: Candidate, chosen: Candidate
) -> dict[str, Any] | None:
    """What was limited and chosen, and the front; None without a quality limit.

    Returns:
        `measure`, `at_most` and `risk` as the problem states them; `bound`, `mean` and `samples` of
        the chosen plan; `lossless_speedup`, of the best plan that loses nothing; `price`, how much
        faster one more per cent of the bound makes the next best plan, None where none is faster;
        `front`, see `front_data`.
    """
    quality = facts.problem.limits.quality
    if quality is None:
        return None
    offered, loss = offers(facts, candidates, plain), chosen.loss
    lossless = next(one for one in offered if one.candidate.loss is None)
    return {
        "measure": measure_name(quality),
        "at_most": quality.at_most,
        "risk": quality.risk,
        "bound": 0.0 if loss is None else loss.bound,
        "mean": 0.0 if loss is None else loss.mean,
        "samples": 0 if loss is None else loss.samples,
        "lossless_speedup": lossless.speedup.mean,
        "price": _price(offered, chosen),
        "front": front_data(offered),
    }


def _price(offered: Sequence[Offer], chosen: Candidate) -> float | None:
    """Speedup per hundredth of loss from the chosen plan to the next faster one on the front."""
    place = next((i for i, one in enumerate(offered) if one.candidate is chosen), None)
    faster = [] if place is None else [one for one in offered[:place] if one.best]
    if place is None or not faster or faster[-1].bound <= offered[place].bound:
        return None
    step = faster[-1].bound - offered[place].bound
    return (faster[-1].speedup.mean / offered[place].speedup.mean - 1.0) / (100.0 * step)


def certificate(
    facts: ProblemFacts, candidates: Sequence[Candidate], chosen: Candidate
) -> Certificate | None:
    """What says that the chosen plan keeps the limit; None where it loses nothing by proof.

    Args:
        facts: the problem.
        candidates: all that were tested.
        chosen: one of them.
    """
    quality, workload, loss = facts.problem.limits.quality, facts.problem.workload, chosen.loss
    if quality is None or loss is None or chosen.plan is None:
        return None
    return Certificate(
        plan=rounds_key(chosen.plan),
        models={role: facts.shapes[role].digest for role in chosen.plan.models_run},
        sampling=(float(workload.temperature), workload.top_k, float(workload.top_p)),
        measure=measure_name(quality),
        at_most=quality.at_most,
        risk=quality.risk,
        data=facts.losses[rounds_key(chosen.plan)].data,
        grid=tuple(_tested(one) for members in sequences_of(facts, candidates) for one in members),
        mean=loss.mean,
        bound=loss.bound,
        samples=loss.samples,
    )


def _tested(candidate: Candidate) -> Tested:
    assert candidate.plan is not None and candidate.loss is not None, "its loss is known"
    loss = candidate.loss
    words = f"{candidate.method}: {candidate.words}"
    key = rounds_key(candidate.plan)
    return Tested(key, words, loss.calibrated, loss.p_value, loss.keeps)
