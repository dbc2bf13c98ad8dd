"""From a problem to what planning knows of it, measured where it is left open, and to a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from specplan.progress import Progress

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.drafters import Drafter
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.cost_models.devices.device import Device
    from specplan.cost_models.quality.certificate import Measured
    from specplan.cost_models.quality.formats import FormatLoss
    from specplan.ir.errors import SpecplanError
    from specplan.measure.workbench import Workbench
    from specplan.planner.facts import ProblemFacts
    from specplan.planner.problem.schema import Problem
    from specplan.planner.search.search import SearchResult

_MOST_OF_MEMORY = 0.5
"""That the models of several formats may take when their speeds are compared in turns."""


def find(problem: Problem, progress: Progress) -> SearchResult:
    """The best plan of a problem, on the best of its backends and formats where it names several.

    Args:
        problem: a checked problem.
        progress: called during everything that takes long.

    Raises:
        UsageError: something that the problem names, or a stored measurement, is broken.
        InfeasibleError: no plan keeps the limits.
        MissingCapabilityError: measuring needs an extra, or no backend runs a plan, or compiles
            rounds, at all.
    """
    from specplan.ir.errors import InfeasibleError, MissingCapabilityError
    from specplan.planner.search.search import search
    from specplan.problems import each_variant

    def pricing(done: int, total: int) -> None:
        progress("pricing candidates", done, total)

    def searched(facts: ProblemFacts) -> SearchResult:
        result = search(facts, pricing)
        losses = measured_losses(result, progress)
        return search(replace(facts, losses=losses), pricing) if losses else result

    variants = each_variant(problem)
    if len(variants) == 1:
        return searched(gather(variants[0], progress))
    from specplan.planner.quality.limit import check_format
    from specplan.planner.search.backends import best_backend, incomparable_backends

    known: dict[str, ProblemFacts] = {}
    searches: dict[str, SearchResult | SpecplanError] = {}
    lost = lost_by_formats(variants, progress)
    for one in variants:
        try:
            check_format(one, lost)
            known[one.label] = gather(one, progress)
        except (MissingCapabilityError, InfeasibleError) as error:  # another one may do
            searches[one.label] = error
    searches |= incomparable_backends(known)
    known |= _in_turns(
        {name: facts for name, facts in known.items() if name not in searches}, progress
    )
    for name in [one for one in known if one not in searches]:
        try:
            searches[name] = searched(known[name])
        except (MissingCapabilityError, InfeasibleError) as error:
            searches[name] = error
    by_label = {one.label: lost.get(one.models.target.format_words) for one in variants}
    return best_backend({one.label: searches[one.label] for one in variants}, by_label)


def _in_turns(known: Mapping[str, ProblemFacts], progress: Progress) -> dict[str, ProblemFacts]:
    """With plain decoding in turns, of those whose times were measured here (`plain_in_turns`).

    Empty where there is nothing to compare, where plans were raced (`specplan tune`), and where the
    models would not be in memory together.
    """
    from specplan.backends.registry import backend_names

    here = {
        name: facts
        for name, facts in known.items()
        if facts.device.kind == "measured" and facts.problem.backend in backend_names()
    }
    raced = any(facts.measured.plans for facts in here.values())
    if len(here) < 2 or raced:
        return {}
    together = sum(facts.target.weight_bytes for facts in here.values())
    memory = min(facts.device.memory_bytes for facts in here.values())
    if together > _MOST_OF_MEMORY * memory:
        return {}
    from specplan.planner.measured.plans import MeasuredPlans
    from specplan.planner.measured.store import turns_paths

    paths = turns_paths(here)
    if not all(path.is_file() for path in paths.values()):
        from specplan.measure.bench.plain_in_turns import plain_in_turns

        benches = {name: (open_bench(facts.problem)[0], facts) for name, facts in here.items()}
        for name, plans in plain_in_turns(benches, progress).items():
            plans.save(paths[name])
    return {
        name: replace(facts, measured=MeasuredPlans.load(paths[name]))
        for name, facts in here.items()
    }


def lost_by_formats(variants: Sequence[Problem], progress: Progress) -> dict[str, FormatLoss]:
    """What a target loses in other formats than those of its first variant, by `format_words`.

    Nothing where the problem gives no prompts; formats in which it does not run are left out.

    Raises:
        UsageError: there are too few prompts.
        MissingCapabilityError: running models needs an extra.
    """
    first, quality = variants[0], variants[0].limits.quality
    given = quality.prompts if quality is not None else None
    if not first.formats or (given or first.workload.prompts) is None:
        return {}
    from specplan.ir.errors import MissingCapabilityError
    from specplan.measure.quality.formats import format_loss

    lost: dict[str, FormatLoss] = {}
    before, _ = open_bench(first)
    for one in variants:
        words = one.models.target.format_words
        if words != first.models.target.format_words and words not in lost:
            with suppress(MissingCapabilityError):
                lost[words] = format_loss(before, open_bench(one)[0], progress)
    return lost


def measured_losses(result: SearchResult, progress: Progress) -> Mapping[str, Measured]:
    """What the priced plans of a search lose that change the output, by the plans' keys.

    Those that nobody would choose, since the best lossless plan is faster, are left out, unless
    their losses are known already.

    Args:
        result: of a search without losses; nothing is measured without a quality limit.
        progress: called for every batch of prompts.

    Raises:
        UsageError: there are too few prompts.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.planner.quality.limit import worth_measuring

    problem = result.facts.problem
    quality = problem.limits.quality
    if quality is None or (quality.prompts or problem.workload.prompts) is None:
        return {}
    bench, _ = open_bench(problem)
    from specplan.measure.quality.calibrate import measure_losses
    from specplan.measure.quality.losses import is_replayed

    cheap = partial(is_replayed, quality)
    plans = worth_measuring(result.facts, result.candidates, result.plain, cheap)
    return measure_losses(bench, plans, progress, leave_out=True)


def gather(problem: Problem, progress: Progress, *, tuned: bool = True) -> ProblemFacts:
    """Everything that planning needs to know, measured where the problem leaves it open.

    Args:
        problem: a checked problem; of its `backend`, others are not looked at.
        progress: called during everything that takes long.
        tuned: read the plans that `specplan tune` measured on this machine too.

    Raises:
        UsageError: something that the problem names, or a stored measurement, is broken, or a
            method that it names cannot be tried.
        MissingCapabilityError: measuring needs an extra, or the backend compiles no rounds here.
    """
    from specplan.planner.facts import gather_facts
    from specplan.planner.measured.store import known_plans
    from specplan.planner.problem.checks import needs_running
    from specplan.planner.search.settings import check_named_methods
    from specplan.problems import capabilities_of, on_used_devices

    device: Device | None = None
    profiles: Mapping[Drafter, AcceptanceProfile] = {}
    capabilities = capabilities_of(problem)
    problem = on_used_devices(problem, capabilities)
    if needs_running(problem):
        device, profiles = _measured(problem, progress)
    facts = gather_facts(problem, device=device, profiles=profiles, capabilities=capabilities)
    check_named_methods(facts)
    return replace(facts, measured=known_plans(facts)) if tuned else facts


def _measured(
    problem: Problem, progress: Progress
) -> tuple[Device | None, Mapping[Drafter, AcceptanceProfile]]:
    """What running the models tells: the device where it is to be measured, and acceptance."""
    from specplan.problems import capabilities_of, compilers_of

    bench, known = open_bench(problem)
    from specplan.cost_models.devices.device import load_device
    from specplan.cost_models.devices.measured.compiled import compiled_by
    from specplan.measure.device.profile import measure_device
    from specplan.measure.drafters import measure_drafters

    device: Device | None = None
    if problem.device == "measured":
        compilers = compilers_of(problem.model_copy(update={"backends": ()}))
        device = measure_device(bench, known, progress=progress, compilers=compilers)
    if problem.workload.prompts is None:
        return device, {}
    known = replace(known, capabilities=capabilities_of(problem))
    priced = device or load_device(problem.device, problem.backend)
    priced = compiled_by(priced, problem.backend)
    return device, measure_drafters(bench, known, priced, progress)


def open_bench(problem: Problem) -> tuple[Workbench, ProblemFacts]:
    """What measuring needs; the device in these facts only fills a place.

    Raises:
        MissingCapabilityError: running models needs an extra.
        UsageError: the problem's backend runs no models on this machine.
    """
    from specplan.ir.capabilities import INTERPRETER
    from specplan.ir.errors import UsageError
    from specplan.planner import measured_here
    from specplan.planner.problem.setting_checks import known_backends

    if problem.backend not in known_backends():
        raise UsageError(
            f'measuring runs models on this machine, and "{problem.backend}" runs none here',
            where="backend",
            remedy=f"Write backend: {INTERPRETER} to measure; these run here: "
            f"{', '.join(known_backends())}.",
        )
    checked = measured_here(problem)
    from specplan.runtime import require_torch

    require_torch()
    from specplan.cost_models.devices.device import load_device
    from specplan.measure.workbench import Workbench
    from specplan.planner.facts import gather_facts

    return Workbench(checked), gather_facts(checked, device=load_device("cpu-generic"))
