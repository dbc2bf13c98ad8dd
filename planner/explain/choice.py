"""How sure the choice is, and what is best for each load alone: as data and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.cost_models.cells import split
from specplan.planner.answer.names import plan_name
from specplan.planner.answer.points import memory_words
from specplan.planner.explain.numbers import (
    about,
    interval_data,
    ratio_words,
    short,
)
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import best_by_score, gains
from specplan.planner.search.search import SearchResult
from specplan.planner.search.uncertainty import speed_over

_RIVALS = 3
_POINTS, _WAYS = 4, 2
"""Points of a front, or without memory, that are named in words; ways to fit that are."""
_WORTH_TELLING = 0.0005
"""Measurements that save less than this fraction of the time are left out."""
_WORTH_RUNS = 0.005
"""An expected loss above this fraction of the time is worth the minutes of a tuning."""


def confidence_data(result: SearchResult) -> dict[str, Any]:
    """Probability of being the best, expected regret, rivals and measurements by worth."""
    sure, facts = result.confidence, result.facts
    problem = facts.problem
    here = problem.device == "measured" and problem.workload.prompts is not None
    return {
        "runs_would_tell": here
        and not facts.measured.plans
        and sure.expected_regret >= _WORTH_RUNS,
        "probability_best": sure.probability_best,
        "expected_regret": sure.expected_regret,
        "rivals": [
            {"method": rival.method, "words": rival.words, "probability": probability}
            for rival, probability in sure.rivals[:_RIVALS]
        ],
        "measurements": [
            {"kind": item.kind, "name": item.name, "regret_saved": item.regret_saved}
            for item in sure.measurements
        ],
    }


def runner_up_data(result: SearchResult) -> dict[str, Any] | None:
    """The second best plan, and how many times as fast the chosen one is; None without one."""
    others = [c for c in result.candidates if c.admissible and c is not result.chosen]
    return _beaten(result, others)


def best_single_data(result: SearchResult) -> dict[str, Any] | None:
    """The best plan of one round, where a schedule was chosen: what several rounds are worth.

    None where the chosen plan is no schedule, and where every single round is refused.
    """
    if not result.chosen.by_cell:
        return None
    return _beaten(result, [c for c in result.candidates if c.admissible and not c.by_cell])


def _beaten(result: SearchResult, others: Sequence[Candidate]) -> dict[str, Any] | None:
    """The best of these, and how many times as fast as it the chosen plan is.

    `simpler` tells why a plan may be chosen that is no faster: of equals the simpler one is.
    """
    facts = result.facts
    best = best_by_score(others, facts.objective)
    if best is None:
        return None
    gain = speed_over(result.chosen, best, facts.profiles, facts.objective)
    return {
        "method": best.method,
        "words": best.words,
        "gain": interval_data(gain),
        "simpler": result.chosen.simplicity < best.simplicity,
    }


def loads_data(result: SearchResult) -> list[dict[str, Any]]:
    """The best plan of each load alone; nothing where there is one load."""
    plain, count = result.plain.estimate, len(result.best_of_each)
    if count == 1:
        return []
    assert plain is not None, "plain decoding has a price"
    by_candidate = {
        id(best): split(gains(best.estimate, plain, result.facts.objective), count)
        for best in result.best_of_each
        if best is not None and best.estimate is not None
    }
    loads = zip(split((plain.batch, plain.prompt_tokens), count), result.best_of_each, strict=True)
    return [
        {
            "batch": batch,
            "prompt_tokens": prompt,
            "method": None if best is None else best.method,
            "words": None if best is None else best.words,
            "speedup": None if best is None else interval_data(by_candidate[id(best)][place]),
        }
        for place, ((batch, prompt), best) in enumerate(loads)
    ]


def pareto_data(result: SearchResult) -> list[dict[str, Any]]:
    """The front of speed per user against speed per device, fastest user first."""
    return [
        {
            "batch": point.batch,
            "prompt_tokens": point.prompt_tokens,
            "method": point.candidate.method,
            "words": point.candidate.words,
            "per_user": interval_data(point.per_user),
            "per_device": interval_data(point.per_device),
        }
        for point in result.pareto
    ]


def confidence_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """What the estimates leave open of the choice, and which measurement would settle most."""
    sure = explanation["confidence"]
    if sure["probability_best"] > 0.995:
        yield "No other candidate is likely to be faster."
        return
    rivals = ", ".join(f"{plan_name(rival)} {rival['probability']:.0%}" for rival in sure["rivals"])
    yield (
        f"By these intervals it is the fastest candidate with probability "
        f"{sure['probability_best']:.0%} (else: {rivals}); the expected loss against the fastest "
        f"is {sure['expected_regret']:.1%}."
    )
    worth = [item for item in sure["measurements"] if item["regret_saved"] >= _WORTH_TELLING]
    if worth:
        first = worth[0]
        what = "device" if first["kind"] == "device" else "acceptance"
        of = "ops beside the models" if first["name"] == "ops" else f'"{first["name"]}"'
        yield (
            f"To be surer, measure the {what} of {of} better: knowing it exactly would save "
            f"{first['regret_saved']:.1%} of the time."
        )
    if sure.get("runs_would_tell"):
        yield "Runs can tell what prices leave open: `specplan tune` has likely plans take turns."


def runner_up_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """By how much the second best plan is behind, and the best single round behind a schedule.

    Reports of older bundles say nothing of it.
    """
    second, single = explanation.get("runner_up"), explanation.get("best_single")
    at = "" if explanation.get("load") is None else ", or serves so many times its requests"
    if second is not None:
        simpler = " and is simpler" if second["gain"]["mean"] < 1.0 and second["simpler"] else ""
        yield (
            f"Second best: {plan_name(second)}; the chosen plan is "
            f"{about(second['gain'], ratio_words)} times as fast{at}{simpler}."
        )
    if single is not None and single != second:
        yield (
            f"Best with one round for all loads: {plan_name(single)}; the "
            f"schedule is {about(single['gain'], ratio_words)} times as fast{at}."
        )
    elif single is not None:
        yield "It is the best with one round for all loads: this is what the schedule is worth."


def loads_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """One line per load, with the best plan of that load alone."""
    for load in explanation["loads"]:
        name = load_name(explanation, load)
        if load["method"] is None:
            yield f"For {name} alone no plan keeps the limits."
        else:
            yield (
                f"Best for {name} alone: {plan_name(load)}; "
                f"{about(load['speedup'], short)} times the speed of no speculation."
            )
    yield from memory_words(explanation)


def pareto_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """One line per length of prompts: the front from the fastest user to the fullest device."""
    lengths = sorted({point["prompt_tokens"] for point in explanation["pareto"]})
    for length in lengths:
        front = [point for point in explanation["pareto"] if point["prompt_tokens"] == length]
        if len(front) < 2:
            continue
        prompts = f", prompts of {length}" if len(lengths) > 1 else ""
        points = [_point_words(front[place]) for place in _spread(len(front))]
        yield (
            f"No plan is faster both for a user and for the device{prompts}, in tokens/s of one "
            f"request and of all, prompts included: {'; '.join(points)}."
        )


def _spread(count: int) -> list[int]:
    """At most `_POINTS` places, the first and the last among them."""
    if count <= _POINTS:
        return list(range(count))
    return [round(place * (count - 1) / (_POINTS - 1)) for place in range(_POINTS)]


def _point_words(point: Mapping[str, Any]) -> str:
    user, device = (about(point[key], short) for key in ("per_user", "per_device"))
    return f"batch {point['batch']}, {plan_name(point)}, {user} and {device}"


def load_name(explanation: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    """`batch 4`, and the prompts' length where there are several."""
    lengths = {other["prompt_tokens"] for other in explanation["plain"]["by_batch"]}
    prompts = f", prompts of {load['prompt_tokens']}" if len(lengths) > 1 else ""
    return f"batch {load['batch']}{prompts}"
