"""One choice among several backends: a plan is searched for on each, and the best is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specplan.ir.errors import SpecplanError
from specplan.planner.as_data import interval_data
from specplan.planner.comparing import is_gain, score, speedup
from specplan.planner.search import OnBackend, SearchResult


def best_backend(found: Mapping[str, SearchResult | SpecplanError]) -> SearchResult:
    """The best of several searches.

    The first backend that has a plan is left only for a gain beyond the errors that the two do not
    share (`is_gain`); what one machine's times have in common is wrong for all alike.

    Args:
        found: by backend, in the problem's order: a search, or why there is none.

    Returns:
        The search whose plan was taken, with what was found on each.

    Raises:
        SpecplanError: no backend has a plan: the reason of the first.
    """
    able = {name: one for name, one in found.items() if isinstance(one, SearchResult)}
    if not able:
        raise next(error for error in found.values() if isinstance(error, SpecplanError))
    first, *others = able.values()
    objective = first.facts.objective
    better = [one for one in others if is_gain(speedup(one.chosen, first.chosen, objective))]
    best = min((first, *better), key=lambda one: score(one.chosen, objective))
    return replace(best, backends=tuple(_on(name, one) for name, one in found.items()))


def _on(name: str, found: SearchResult | SpecplanError) -> OnBackend:
    if isinstance(found, SearchResult):
        return OnBackend(name, found.chosen)
    return OnBackend(name, refusal=str(found).splitlines()[0])


def backends_data(result: SearchResult) -> list[dict[str, Any]]:
    """What was found on each of several backends; empty where there was one.

    Returns:
        By backend: `method` and `words` of the best plan there, None where there is none and
        `refusal` says why; and `gain`, how many times as fast the chosen plan is as another one.
    """
    return [
        {
            "backend": one.backend,
            "chosen": one.backend == result.facts.problem.backend,
            "method": None if one.chosen is None else one.chosen.method,
            "words": None if one.chosen is None else one.chosen.words,
            "gain": _gain(result, one),
            "refusal": one.refusal or None,
        }
        for one in result.backends
    ]


def _gain(result: SearchResult, one: OnBackend) -> dict[str, float] | None:
    if one.chosen is None or one.chosen is result.chosen:
        return None
    return interval_data(speedup(result.chosen, one.chosen, result.facts.objective))
