"""One choice among several backends and formats: a search for each, and the best is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from specplan.cost_models.quality.formats import FormatLoss
from specplan.ir.capabilities import Capabilities
from specplan.ir.errors import InfeasibleError, MissingCapabilityError, SpecplanError
from specplan.planner.explain.numbers import interval_data
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.comparing import is_gain, speedup
from specplan.planner.search.search import OnBackend, SearchResult


def best_backend(
    searches: Mapping[str, SearchResult | SpecplanError],
    lost: Mapping[str, FormatLoss | None] = MappingProxyType({}),
) -> SearchResult:
    """The best of several searches.

    An earlier backend is left only for a gain beyond the errors that the two do not share
    (`is_gain`); what one machine's times have in common is wrong for all alike.

    Args:
        searches: by `Problem.label`, in the problem's order: a search, or why there is none.
        lost: what the target's number format loses, by label.

    Returns:
        The search whose plan was taken, with the outcome on each.

    Raises:
        SpecplanError: no backend has a plan: the reason of the first, a limit before what is
            missing.
    """
    able = [one for one in searches.values() if isinstance(one, SearchResult)]
    if not able:
        errors = [one for one in searches.values() if isinstance(one, SpecplanError)]
        raise min(errors, key=lambda error: not isinstance(error, InfeasibleError))
    best, *others = able
    for one in others:
        if is_gain(speedup(one.chosen, best.chosen, one.facts.objective)):
            best = one
    return replace(best, backends=tuple(_on(name, one, lost) for name, one in searches.items()))


def incomparable_backends(known: Mapping[str, ProblemFacts]) -> dict[str, SpecplanError]:
    """Backends whose times cannot be compared with those of others, with the reason.

    Where compiled rounds of one were timed, interpreted ones do not stand for those of another.
    """
    from specplan.cost_models.devices.measured.compiled import CompiledDevice

    timed = {name for name, facts in known.items() if isinstance(facts.device, CompiledDevice)}
    return {
        name: MissingCapabilityError(
            "how long its steps take was not measured on this device",
            where=f"backend {name}",
            remedy="Run `specplan profile device` where the backend is installed.",
        )
        for name, facts in known.items()
        if timed and name not in timed and not _interprets(facts)
    }


def _interprets(facts: ProblemFacts) -> bool:
    able = facts.capabilities
    return isinstance(able, Capabilities) and not able.whole_rounds


def _on(
    name: str, outcome: SearchResult | SpecplanError, lost: Mapping[str, FormatLoss | None]
) -> OnBackend:
    if isinstance(outcome, SearchResult):
        return OnBackend(name, outcome.chosen, loss=lost.get(name))
    return OnBackend(name, refusal=str(outcome).splitlines()[0], loss=lost.get(name))


def backends_data(result: SearchResult) -> list[dict[str, Any]]:
    """The outcome on each of several backends; empty where there was one.

    Returns:
        By backend and formats: `method` and `words` of the best plan there, None where there is
        none and `refusal` says why; `gain`, how many times as fast the chosen plan is as another
        one; and `loss` of the target's number format against the first (`FormatLoss.as_dict`), None
        where it is the first or not measured.
    """
    return [
        {
            "backend": one.backend,
            "chosen": one.backend == result.facts.problem.label,
            **({"method": None, "words": None} if one.chosen is None else one.chosen.named),
            "gain": _gain(result, one),
            "refusal": one.refusal or None,
            "loss": None if one.loss is None else one.loss.as_dict(),
        }
        for one in result.backends
    ]


def _gain(result: SearchResult, one: OnBackend) -> dict[str, float] | None:
    if one.chosen is None or one.chosen is result.chosen:
        return None
    return interval_data(speedup(result.chosen, one.chosen, result.facts.objective))
