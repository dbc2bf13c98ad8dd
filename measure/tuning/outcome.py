"""What a contest found: measured plans for the searches to come, and the table of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specplan.measure.tuning.race import Race
from specplan.measure.tuning.study import Trial
from specplan.planner import MeasuredPlan, MeasuredPlans


@dataclass(frozen=True)
class Line:
    """One plan at one load.

    Attributes:
        batch: requests that ran together.
        prompt_tokens: longest prompt, in tokens.
        plan: the key of the plan.
        method: that wrote it.
        words: the setting in a few words.
        turns: that it had.
        tokens_per_second: output tokens over all seconds, prompts included, of its own turns.
        tokens_per_round: emitted per request and round, the bonus included.
        ratio: seconds over those of the load's leader, measurement and price together.
        error: relative half width of the 90 % interval of `ratio`.
        predicted: tokens per second as priced before the contest.
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
    contest: Race, trials: Sequence[Trial], provenance: Mapping[str, Any]
) -> MeasuredPlans:
    """Seconds and tokens of every plan that ran, as sure as they are known."""
    return MeasuredPlans(tuple(_measured(contest, trials)), provenance)


def _measured(contest: Race, trials: Sequence[Trial]) -> Iterator[MeasuredPlan]:
    for load in contest.contenders.loads:
        keys, standing = contest.standing(load, trials)
        for index, key in enumerate(keys):
            mine = [trial for trial in trials if trial.load == load and trial.plan == key]
            if mine:
                candidate = contest.contenders[key]
                yield MeasuredPlan(
                    plan=key,
                    method=candidate.method,
                    family=candidate.family,
                    words=candidate.words,
                    point=contest.contenders.point(key),
                    batch=load[0],
                    prompt_tokens=load[1],
                    seconds_per_token=standing.seconds_of(index),
                    error=standing.error(index),
                    shared=standing.level,
                    tokens_per_round=_tokens_per_round(mine),
                    turns=len(mine),
                )


def lines(contest: Race, trials: Sequence[Trial]) -> list[Line]:
    """Every plan that ran, load by load, the fastest first."""
    found = []
    for load in contest.contenders.loads:
        keys, standing = contest.standing(load, trials)
        for index, key in enumerate(keys):
            mine = [trial for trial in trials if trial.load == load and trial.plan == key]
            if not mine:
                continue
            candidate = contest.contenders[key]
            estimate = candidate.estimates[contest.contenders.loads.index(load)]
            line = Line(
                batch=load[0],
                prompt_tokens=load[1],
                plan=key,
                method=candidate.method,
                words=candidate.words,
                turns=len(mine),
                tokens_per_second=sum(t.tokens for t in mine) / sum(t.seconds for t in mine),
                tokens_per_round=_tokens_per_round(mine),
                ratio=standing.seconds_of(index) / standing.seconds,
                error=standing.error(index),
                predicted=estimate.tokens_per_second_end_to_end.mean,
                leads=index == standing.leader,
                alive=bool(standing.alive[index]),
            )
            found.append((contest.contenders.loads.index(load), line.ratio, line))
    return [line for *_, line in sorted(found, key=lambda entry: entry[:2])]


def _tokens_per_round(trials: Sequence[Trial]) -> float:
    return sum(t.tokens for t in trials) / max(sum(t.rounds for t in trials), 1)
