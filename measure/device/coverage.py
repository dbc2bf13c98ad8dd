"""What a device profile needs for a problem: the probes to time, and the cells to time them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Fallback, FirstLayers, Model, SmallCache
from specplan.cost_models.acceptance.evidence.fallback import FallbackTrace
from specplan.cost_models.acceptance.evidence.lengths import NOTHING
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.ir.capabilities import refusals
from specplan.ir.plan import Plan
from specplan.measure.device.probes import (
    Probe,
    budget_probes,
    exit_probes,
    probes,
    skip_probes,
    source_probes,
)
from specplan.measure.workbench import Workbench
from specplan.planner import (
    ProblemFacts,
    acceptance_key,
    later_drafters,
    leaves_blocks_out,
    possible_drafters,
    profiling_plan,
    settings_by,
)

Cell = tuple[int, int]
"""Batch size, and context in tokens."""
HEAD_RATES = ((0.7, 0.12, 0.05, 0.03),)
"""Acceptance by rank for which trees of heads are built, to be timed; see `head_probes`."""
ANY_FALLBACK = FallbackTrace(32, 32, (((1, 1), (NOTHING, 1)),))
"""Acceptance of a source and a drafter behind it, of any numbers, with which both are timed."""


def cells(
    facts: ProblemFacts, batches: Sequence[int] = (), contexts: Sequence[int] = ()
) -> list[Cell]:
    """(batch, context in tokens) to measure at: every batch, shortest and longest text."""
    shortest = min(request.prompt_tokens for request in facts.requests)
    ends = {max(shortest, 1), max(facts.longest_text - 1, 1)}
    return list(product(sorted({*facts.batch_sizes, *batches}), sorted({*ends, *contexts})))


def budget_cells(facts: ProblemFacts, whole: Sequence[Cell]) -> list[Cell]:
    """Cells in which only chains are measured: contexts as long as the small caches of drafters.

    Only below the contexts of the whole cells: between two of them, rows of chains would stand
    between rows of trees, and the times there follow from both neighbours.
    """
    shortest = min(context for _, context in whole)
    budgets = [budget for budget in budgets_of(facts) if budget < shortest]
    return list(product(sorted({batch for batch, _ in whole}), budgets))


def exits_of(facts: ProblemFacts) -> tuple[int, ...]:
    """Layers after which the problem's methods may exit the target to draft."""
    every = (one for one in possible_drafters(facts) if isinstance(one, FirstLayers))
    return tuple(one.layers for one in every if one.model == "target")


def budgets_of(facts: ProblemFacts) -> tuple[int, ...]:
    """Budgets of the problem's drafters with small caches, in tokens."""
    return tuple(sorted({drafter.budget for drafter in _small_caches(facts)}))


def _small_caches(facts: ProblemFacts) -> list[SmallCache]:
    """The problem's drafters with small caches, by rising budget."""
    every = (one for one in possible_drafters(facts) if isinstance(one, SmallCache))
    return sorted(every, key=lambda one: one.budget)


def every_probe(bench: Workbench, facts: ProblemFacts) -> list[Probe]:
    """The probes of a problem that the backend runs."""
    exits = exits_of(facts)
    greedy, target = bench.problem.workload.greedy, bench.models["target"]
    models = [name for name in bench.drafts if name not in facts.drafters]
    every = [*probes(models, greedy, target.vocab_size)]
    every += (probe for _, probe in head_probes(facts))
    every += fallback_probes(facts)
    every += exit_probes(exits, target.num_layers, greedy)
    sources = [DRAFT_SOURCES[word] for word in bench.problem.sources if word in DRAFT_SOURCES]
    every += source_probes(sources, bench.problem.datastore, greedy)
    if leaves_blocks_out(bench.problem):
        every += skip_probes(target.num_layers, greedy)
    every += profiling_probes(facts)
    for how in ("recent", "retrieved", "observed"):
        parts = [one for one in _small_caches(facts) if one.how == how]
        every += budget_probes(parts, greedy)
    return [probe for probe in every if not refusals(probe.plan, bench.backend.capabilities)]


def head_probes(facts: ProblemFacts) -> Iterator[tuple[str, Probe]]:
    """Per head, and per kind of shape that methods draft with it, the first and the last setting.

    Each comes with the name of its head.

    Which trees are worth a try depends on the acceptance; what they take does not, so that any
    acceptance serves here.
    """
    for name in facts.drafters:
        drafter = Model(name)
        key = acceptance_key(facts.problem, facts.shapes, drafter)
        profile = AcceptanceProfile.from_hazards(HEAD_RATES, key=key)
        known = replace(facts, profiles={drafter: profile})
        by_family: dict[tuple[str, str], list[Any]] = {}
        for setting in settings_by(known, drafter):
            by_family.setdefault((setting.method.name, setting.family), []).append(setting)
        for (method, family), settings in by_family.items():
            for end, setting in {"first": settings[0], "last": settings[-1]}.items():
                plan = setting.method.written(known, setting.options)
                yield name, Probe(f"{method}: {family}, {end}", plan)


def fallback_probes(facts: ProblemFacts) -> Iterator[Probe]:
    """Per source with a drafter behind it, the shortest and the longest drafts of both."""
    for drafter in possible_drafters(facts):
        if isinstance(drafter, Fallback):
            key = acceptance_key(facts.problem, facts.shapes, drafter)
            profile = AcceptanceProfile(key, ANY_FALLBACK)
            known = replace(facts, profiles={drafter: profile})
            settings = [*settings_by(known, drafter)]
            for setting in settings[:: max(len(settings) - 1, 1)]:
                plan = setting.method.written(known, setting.options)
                yield Probe(f"{drafter}: {setting.options.words}", plan)


def profiling_probes(facts: ProblemFacts) -> Iterator[Probe]:
    """Plans that are profiled by running them: the first and the last setting of each method.

    And every other setting whose rounds have an op or a kind of pass that these two lack. Rounds
    that follow each other within a text are timed apart.
    """
    by_method: dict[str, list[Probe]] = {}
    for drafter in dict.fromkeys((*possible_drafters(facts), *later_drafters(facts))):
        plan = profiling_plan(facts, drafter)
        if plan is not None:
            by_method.setdefault(plan.name, []).extend(_single_rounds(Probe(str(drafter), plan)))
    for settings in by_method.values():
        chosen = list(dict.fromkeys((settings[0], settings[-1])))
        covered = set().union(*(_kinds_of_steps(probe.plan) for probe in chosen))
        for probe in settings:
            kinds = _kinds_of_steps(probe.plan)
            if not kinds <= covered:
                chosen.append(probe)
                covered |= kinds
        yield from chosen


def _single_rounds(probe: Probe) -> Iterator[Probe]:
    """A plan, or each round of one whose rounds change with the text: probes run on short texts."""
    if probe.plan.schedule is None:
        yield probe
        return
    for item in probe.plan.rounds:
        plan = replace(probe.plan, rounds=(item,), schedule=None)
        yield Probe(f"{probe.name}, {item.name}", plan)


def _kinds_of_steps(plan: Plan) -> set[object]:
    """The ops and the kinds of passes of a plan's rounds, whatever their widths."""
    return {
        step.name
        if isinstance(step, OpDemand)
        else (step.model, step.spans, step.skips, step.rows > 0)
        for item in plan.rounds
        for step in round_demands(plan, item).steps
    }
