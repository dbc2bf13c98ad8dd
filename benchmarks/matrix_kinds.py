"""One plan of every kind: of a family's settings, one for each set of ops that its plans hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from same_ops import kinds as same_ops
from same_ops import nodes_of

from specplan import api
from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.ir.plan import Plan
from specplan.planner import Family, discover_methods, gather_facts, measured_here
from specplan.planner.drafters.candidates import own_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

PROFILED = 16
"""Prompts that acceptance is measured on: it decides which settings there are, no token."""
MOST_NODES = 16


def kinds(problem: dict[str, Any], work: Path) -> Iterator[tuple[str, Plan]]:
    """One plan of every kind of every family of the problem's methods."""
    every, named = discover_methods(), problem["methods"]
    measured = [name for name in named if not isinstance(every[name], ProfiledByRunning)]
    profiles = api.profile_acceptance(
        problem | {"methods": measured or ["autoregressive"]}, limit=PROFILED
    )
    checked = measured_here(problem_from_dict(problem | {"methods": named}, work))
    facts = gather_facts(checked, device=load_device("cpu-generic"), profiles=profiles)
    facts = replace(facts, profiles=profiles | untold(facts, named))
    for name in named:
        for family in every[name].choices(facts):
            if not isinstance(family, Family):
                print(f"{name}, {family.name}: {family.reason}", file=sys.stderr)
                continue
            small = [item for item in family.settings if nodes_of(item) <= MOST_NODES]
            for kind in same_ops(small, partial(every[name].plan, facts)):
                options, plan = kind[-1]
                yield f"{name}, {family.name}: {options.words}", plan


def untold(facts: ProblemFacts, methods: Sequence[str]) -> dict[Drafter, AcceptanceProfile]:
    """Profiles that tell nothing, of settings that would be measured by running each of them."""
    profiles: dict[Drafter, AcceptanceProfile] = {}
    for name in methods:
        method = discover_methods()[name]
        if isinstance(method, ProfiledByRunning):
            for drafter in own_drafters(facts, method, method.run_settings(facts)):
                key = acceptance_key(facts.problem, facts.shapes, drafter)
                profiles[drafter] = AcceptanceProfile(key, RoundsRun(((0,),)))
    return profiles
