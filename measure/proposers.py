"""Everybody who may draft for a problem: what is accepted of them, in the order it can be known."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.timing.device import Device, load_device
from specplan.measure.acceptance import measure_acceptance
from specplan.measure.progress import Progress, silent
from specplan.measure.skip_sets import search_blocks
from specplan.measure.workbench import Workbench
from specplan.planner import ProblemFacts, ProposerPrices, further_proposers


def measure_proposers(
    bench: Workbench, facts: ProblemFacts, device: Device | None, progress: Progress = silent
) -> dict[str, AcceptanceProfile]:
    """Profiles of a problem's proposers, and of sets of blocks where these are searched for.

    Then of those that draft with what was found, in ways of their own.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; its device is not read.
        device: what prices drafts; None for the one that the problem names.
        progress: told of every prompt and set.
    """
    priced = replace(facts, device=device or load_device(bench.problem.device))
    hopeful = ProposerPrices(priced).hopeful
    found = measure_acceptance(bench, facts, progress=progress, hopeful=hopeful)
    found |= search_blocks(bench, priced, progress=progress)
    known = replace(priced, profiles={**facts.profiles, **found})
    further = further_proposers(known)
    return found | measure_acceptance(
        bench,
        known,
        progress=progress,
        wanted=further,
        hopeful=lambda some: hopeful([*found.values(), *some]),
    )
