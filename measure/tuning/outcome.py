"""Results of a race: measured plans for later searches, and the table of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specplan.measure.tuning.contenders import Load
from specplan.measure.tuning.contest import Contest
from specplan.measure.tuning.elimination import Standing
from specplan.measure.tuning.study import Trial
from specplan.planner import Candidate, MeasuredPlan, MeasuredPlans


@dataclass(frozen=True)
class Line:
    """One plan at one load.

    Attributes:
        batch: requests that ran together.
        prompt_tokens: longest prompt, in tokens.
        plan: the key of the plan.
        method: of the plan.
        words: the setting in a few words.
        turns: its number of turns.
        tokens_per_second: output tokens over all seconds, prompts included, of its own turns.
        tokens_per_round: emitted per request and round, the bonus included.
        ratio: seconds over those of the load's leader, measurement and price together.
        error: relative half width of the 90 % interval of `ratio`.
        predicted: tokens per second as estimated before the race.
        leads: whether it leads.
        alive: whether it may still be faster by more than a tie, or leads.
    """

    batch: int
    prompt_tokens: int
    plan: str
    method: str
    words: str
    turns: int
    tokens_per_second: float
    tokens_per_round: float
    ratio: float
    error: float
    predicted: float
    leads: bool
    alive: bool


def measured_plans(
    race: Contest, trials: Sequence[Trial], provenance: Mapping[str, Any]
) -> MeasuredPlans:
    """Seconds and tokens of every plan that ran, with their errors."""
    plans = [
        MeasuredPlan(
            plan=key,
            method=candidate.method,
            family=candidate.family,
            words=candidate.words,
            point=race.contenders.point(key),
            batch=load[0],
            prompt_tokens=load[1],
            seconds_per_token=standing.seconds_of(index),
            error=standing.error(index),
            shared=standing.level,
            tokens_per_round=_tokens_per_round(runs),
            turns=len(runs),
        )
        for load, standing, index, key, candidate, runs in _plans(race, trials)
    ]
    return MeasuredPlans(tuple(plans), provenance)


def lines(race: Contest, trials: Sequence[Trial]) -> list[Line]:
    """Every plan that ran, load by load, the fastest first."""
    loads = race.contenders.loads
    table = [
        Line(
            batch=load[0],
            prompt_tokens=load[1],
            plan=key,
            method=candidate.method,
            words=candidate.words,
            turns=len(runs),
            tokens_per_second=sum(t.tokens for t in runs) / sum(t.seconds for t in runs),
            tokens_per_round=_tokens_per_round(runs),
            ratio=standing.seconds_of(index) / standing.seconds,
            error=standing.error(index),
            predicted=candidate.estimates[loads.index(load)].tokens_per_second.mean,
            leads=index == standing.leader,
            alive=bool(standing.alive[index]),
        )
        for load, standing, index, key, candidate, runs in _plans(race, trials)
    ]
    return sorted(table, key=lambda one: (loads.index((one.batch, one.prompt_tokens)), one.ratio))


def _plans(
    race: Contest, trials: Sequence[Trial]
) -> Iterator[tuple[Load, Standing, int, str, Candidate, list[Trial]]]:
    """By load, every plan that ran: its index in the standing, its candidate and its runs."""
    for load in race.contenders.loads:
        keys, standing = race.standing(load, trials)
        for index, key in enumerate(keys):
            runs = [trial for trial in trials if trial.load == load and trial.plan == key]
            if runs:
                yield load, standing, index, key, race.contenders[key], runs


def _tokens_per_round(trials: Sequence[Trial]) -> float:
    return sum(t.tokens for t in trials) / max(sum(t.rounds for t in trials), 1)
