"""Everybody who may draft for a problem: what is accepted of them, in the order it can be known."""

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
    """Profiles of a problem's drafters, and of sets of blocks where these are searched for.

    Then of the plans whose own rounds are run with what was found.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; its device is not read.
        device: what prices drafts; None for the one that the problem names.
        progress: told of every prompt and set.
    """
    priced = replace(facts, device=device or load_device(bench.problem.device))
    hopeful = DrafterPrices(priced).worthwhile
    found = measure_acceptance(bench, facts, progress=progress, hopeful=hopeful)
    found |= search_blocks(bench, priced, progress=progress)
    known = replace(priced, profiles={**facts.profiles, **found})
    later = later_drafters(known)
    return found | measure_acceptance(
        bench,
        known,
        progress=progress,
        wanted=later,
        hopeful=lambda some: hopeful([*found.values(), *some]),
    )
