"""How sure the choice is, and what is best for each load alone: as data and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.cost_models.cells import split
from specplan.planner.answer.names import plan_name
from specplan.planner.answer.points import memory_words
from specplan.planner.explain.numbers import about, interval_data, short
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import best_by_score, gains
from specplan.planner.search.search import SearchResult
from specplan.planner.search.uncertainty import speed_over

_RIVALS = 3
_POINTS = 4
"""Points of a front that are named in words."""
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
            {**rival.named, "probability": probability}
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
        **best.named,
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
            **({"method": None, "words": None} if best is None else best.named),
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
            **point.candidate.named,
            "per_user": interval_data(point.per_user),
            "per_device": interval_data(point.per_device),
        }
        for point in result.pareto
    ]


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
