"""Acceptance of all drafters of a problem, in the order in which it can be measured."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import Device, load_device
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.progress import Progress, silent
from specplan.measure.skip_sets import search_blocks
from specplan.measure.workbench import Workbench
from specplan.planner import DrafterPrices, ProblemFacts, later_drafters


def measure_drafters(
    bench: Workbench, facts: ProblemFacts, device: Device | None, progress: Progress = silent
) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of a problem's drafters, and of sets of blocks if the problem searches for them.

    Plans that are profiled by running their own rounds, with these profiles, come last.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; its device is not read.
        device: prices drafts; None for the one that the problem names.
        progress: called for every prompt and set.
    """
    priced = replace(facts, device=device or load_device(bench.problem.device))
    promising = DrafterPrices(priced).promising
    profiles = measure_acceptance(bench, facts, progress=progress, promising=promising)
    profiles |= search_blocks(bench, priced, progress=progress)
    known = replace(priced, profiles={**facts.profiles, **profiles})
    return profiles | measure_acceptance(
        bench,
        known,
        progress=progress,
        wanted=later_drafters(known),
        promising=lambda some: promising([*profiles.values(), *some]),
    )
