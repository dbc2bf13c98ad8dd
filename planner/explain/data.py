"""Why this plan: the explanation of a search as data, ready for JSON.

The words that the command line prints are made from this data alone (`explain_words`), so that a
bundle's report can be explained without the models.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from specplan.cost_models.acceptance.hazards import posterior
from specplan.cost_models.acceptance.model import AcceptanceModel
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.cost_models.rounds.segments import read_drafted
from specplan.planner.explain.assumptions import assumptions
from specplan.planner.explain.break_even import break_evens
from specplan.planner.explain.choice import (
    best_single_data,
    confidence_data,
    loads_data,
    pareto_data,
    runner_up_data,
)
from specplan.planner.explain.governing import governing_formula
from specplan.planner.explain.load import load_data
from specplan.planner.explain.numbers import interval_data, parts_data, seconds_data
from specplan.planner.explain.operating_points import (
    basis_data,
    points_data,
    rules_data,
    setting_data,
    unfit_data,
)
from specplan.planner.facts import ProblemFacts
from specplan.planner.quality.front import quality_data
from specplan.planner.search.backends import backends_data
from specplan.planner.search.candidates import Candidate, judged
from specplan.planner.search.comparing import best_by_score, speedup
from specplan.planner.search.search import SearchResult
from specplan.planner.search.settings import PLAIN


def summarise(result: SearchResult) -> dict[str, Any]:
    """What was decided, and among what.

    Returns:
        `objective`; the `setting`, the `points`, the `rules` of a schedule and the `basis` of the
        numbers, as `operating_points` says; `chosen` and `plain` with their figures by batch size;
        `speedup` over plain decoding; `verdict`, one of `speculate`, `plain_faster`,
        `plain_within_error`, `plain_only`, `plain_refused`, `undecided`; `what_if`, the rows of
        an undecided answer; `assumed`, what was assumed of acceptance, by drafter; `runner_up`,
        the second best plan,
        and `best_single`, the best of one round where a schedule was chosen, each with the chosen
        plan's `gain` over it
        (None where there is none); `confidence`, how sure the choice is and what to measure next;
        `backends`, where there were several to choose among, the best plan on each;
        `load`, under the objective goodput, with the loads at which the plan that drafts is better;
        `loads`, the best plan of each load alone where there are several, those `left_out` because
        they fit with no plan, `unfit`, where nothing or not the drafter fits (`unfit_data`), and
        the `pareto` front of speed per user against speed per device;
        `quality`, with such a limit alone: what the plan may lose, and speed against loss
        (`quality_data`);
        `runners_up`, the best of every other method and family; `refused`, reasons with their
        counts; `assumptions`. Estimates are mappings of `mean`, `low` and `high`, the ends of their
        90 % interval.
    """
    rival = _best_drafting(result)
    limited = quality_data(result.facts, result.candidates, result.plain, result.chosen)
    return {
        "objective": result.facts.problem.objective,
        "setting": setting_data(result),
        "verdict": _verdict(result, rival),
        "what_if": [row.as_dict() for row in result.what_if],
        "assumed": result.assumed,
        "speedup": interval_data(result.speedup),
        "runner_up": runner_up_data(result),
        "best_single": best_single_data(result),
        "confidence": confidence_data(result),
        "backends": backends_data(result),
        "load": load_data(result, _drafting(result, rival)),
        "loads": loads_data(result),
        "pareto": pareto_data(result),
        "points": points_data(result, _drafting(result, rival)),
        "rules": rules_data(result.chosen),
        "basis": basis_data(result, _drafting(result, rival)),
        "left_out": [list(load) for load in result.left_out],
        "unfit": unfit_data(result),
        "chosen": _by_batch(result, result.chosen),
        "plain": _by_batch(result, result.plain),
        "best_drafting": None if rival is None else _by_batch(result, rival),
        "runners_up": [_summary(result, candidate) for candidate in _runners_up(result)],
        "candidates": {
            "priced": sum(candidate.priced for candidate in result.candidates),
            "refused": sum(candidate.refusal is not None for candidate in result.candidates),
        },
        "refused": _refused(result),
        "assumptions": assumptions(result),
        **({} if limited is None else {"quality": limited}),
    }


def explain(result: SearchResult) -> dict[str, Any]:
    """The explanation of a search.

    Returns:
        What `summarise` gives; `time`, seconds by op of the chosen and the plain round;
        `acceptance` by depth, of every round that drafts; `laws`, those that govern the
        rounds of the chosen plan, with its numbers;
        `break_even`, where each round of the chosen plan, or the best one that drafts, stops paying
        (`points`, see `break_evens`).
    """
    facts = result.facts
    drafting = _drafting(result, _best_drafting(result))
    every = () if drafting is None else drafting.parts
    parts = [part for part in every if part[0].drafter is not None and _drafts(part[0])]
    return summarise(result) | {
        "time": {
            "chosen": [_time(estimate) for estimate in result.chosen.estimates],
            "plain": [_time(estimate) for estimate in result.plain.estimates],
        },
        "acceptance": [_acceptance(facts, part) for part, _ in parts],
        "laws": [
            governing_formula(part, result.plain, judged(part), cells)
            for part, cells in result.chosen.parts
        ],
        "break_even": [
            {
                **part.named,
                "points": break_evens(facts, part, result.plain, cells),
            }
            for part, cells in parts
        ],
    }


def _drafting(result: SearchResult, rival: Candidate | None) -> Candidate | None:
    """The chosen plan where it drafts, else the best one that does."""
    return rival if result.chosen.method == PLAIN else result.chosen


def _drafts(candidate: Candidate) -> bool:
    tree = judged(candidate)
    return tree is not None and tree.nodes > 0


def _best_drafting(result: SearchResult) -> Candidate | None:
    """The best candidate that drafts: admissible if there is one, else refused by a limit."""
    drafting = [c for c in result.candidates if c.method != PLAIN and c.unsupported is None]
    objective = result.facts.objective
    admissible = [candidate for candidate in drafting if candidate.admissible]
    return best_by_score(admissible or drafting, objective)


def _verdict(result: SearchResult, rival: Candidate | None) -> str:
    if result.undecided:
        return "undecided"
    if result.chosen.method != PLAIN:
        return "speculate" if result.plain.admissible else "plain_refused"
    if rival is None or not rival.admissible:
        return "plain_only"
    gain = speedup(rival, result.plain, result.facts.objective)
    return "plain_within_error" if gain.high > 1.0 else "plain_faster"


def _runners_up(result: SearchResult) -> list[Candidate]:
    """The best priced candidate of every family but the chosen one, best first."""
    objective = result.facts.objective
    families: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in result.candidates:
        if candidate.priced and candidate is not result.chosen:
            families.setdefault((candidate.method, candidate.family), []).append(candidate)
    bests = [
        best_by_score([c for c in members if c.admissible] or members, objective)
        for members in families.values()
    ]
    gains = {id(c): speedup(c, result.plain, objective).mean for c in bests if c is not None}
    return sorted((c for c in bests if c is not None), key=lambda c: -gains[id(c)])


def _summary(result: SearchResult, candidate: Candidate) -> dict[str, Any]:
    objective, served = result.facts.objective, result.served_by(candidate)
    return {
        **candidate.named,
        "family": candidate.family,
        "assumed": _assumed(result, candidate),
        "options": dict(candidate.options),
        "refusal": candidate.refusal,
        "cause": candidate.cause,
        "speedup": interval_data(speedup(candidate, result.plain, objective)),
        "at_load": None if served is None else served.as_dict(),
    }


def _assumed(result: SearchResult, candidate: Candidate) -> bool:
    """Whether its estimates rest on an assumed acceptance."""
    return any(str(part.drafter) in result.assumed for part, _ in candidate.parts)


def _by_batch(result: SearchResult, candidate: Candidate) -> dict[str, Any]:
    """The summary, and what is estimated at every load."""
    figures = [_figures(estimate) for estimate in candidate.estimates]
    return _summary(result, candidate) | {"by_batch": figures}


def _figures(estimate: Estimate) -> dict[str, Any]:
    """Seconds, bytes and tokens at one batch size."""
    return {
        "batch": estimate.batch,
        "prompt_tokens": estimate.prompt_tokens,
        "tokens_per_second": interval_data(estimate.tokens_per_second),
        "seconds_per_token": seconds_data(estimate.seconds_per_token),
        "tokens_per_round": interval_data(estimate.tokens_per_round),
        "seconds_per_round": seconds_data(estimate.seconds_per_round),
        "ttft": seconds_data(estimate.ttft),
        "memory_bytes": interval_data(estimate.memory.interval),
        "extrapolated": estimate.extrapolated,
    }


def _time(estimate: Estimate) -> dict[str, Any]:
    """Where the time of a round goes, largest part first."""
    parts = sorted(estimate.breakdown, key=lambda part: -part.seconds.median)
    return {
        "batch": estimate.batch,
        "prompt_tokens": estimate.prompt_tokens,
        "parts": parts_data(parts),
    }


def _acceptance(facts: ProblemFacts, candidate: Candidate) -> dict[str, Any]:
    """Acceptance by depth of what the candidate, which has a price, drafts."""
    assert candidate.drafter is not None and candidate.plan is not None, "it drafts"
    profile, tree = facts.profiles[candidate.drafter], judged(candidate)
    drafted = read_drafted(candidate.plan, candidate.estimates[0].segments, profile.evidence)
    assert not isinstance(drafted, Unpriced) and tree is not None, "it has a price and drafts"
    drafting, own = next((one, one.evidence) for _, one in drafted if one.evidence is not None)
    reached = own.model.accepted_at_least(drafting.parents, drafting.ranks)
    widths = None if tree.depths is None else Counter(tree.depths)
    return {
        "drafter": str(candidate.drafter),
        "words": candidate.words,
        "positions": own.positions,
        "parents": None if tree.parents is None else list(tree.parents),
        "may_end": tree.ragged,
        "by_depth": [
            {
                "depth": depth,
                "nodes": None if widths is None else widths[depth],
                "accepted_at_least": interval_data(_share(own.model, share)),
                "first_choice": interval_data(own.model.hazard_interval(depth, 0)),
                "trials": own.model.hazard_counts(depth, 0)[1],
            }
            for depth, share in enumerate(reached, start=1)
        ],
    }


def _refused(result: SearchResult) -> list[dict[str, Any]]:
    """Reasons by method and family; settings of one family that share a kind are counted."""
    groups: dict[tuple[str, str, str], list[Candidate]] = {}
    for candidate in result.candidates:
        if candidate.refusal is not None:
            kind = candidate.refusal.split(":")[0]
            groups.setdefault((candidate.method, candidate.family, kind), []).append(candidate)
    return [
        {
            "method": method,
            "family": family,
            "settings": sum(candidate.plan is not None for candidate in members),
            "example": members[0].words,
            "reason": members[0].refusal,
            "cause": members[0].cause,
        }
        for (method, family, _), members in groups.items()
    ]


def _share(model: AcceptanceModel, share: float) -> Interval:
    """A share of the rounds, counted over as many as there were positions."""
    trials = model.hazard_counts(1, 0)[1]
    return posterior(share * trials, trials) if trials else Interval.exact(share)
