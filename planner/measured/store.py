"""Where measured plans are kept, and those that a problem's device may take for its own.

Plans that ran here belong to this machine and its software, plans that an engine served to the
device that the problem names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.ir.files import name_of
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.plans import SCHEMA_VERSION, MeasuredPlans

if TYPE_CHECKING:
    from specplan.cost_models.devices.measured.table import Provenance

_NAMED = ("hardware", "backend", "threads", "versions")


def plans_path(facts: ProblemFacts, machine: Provenance | str) -> Path:
    """The file for these models, this sampling and task.

    Args:
        facts: the problem.
        machine: what ran the plans: this machine and its software, or the name of a device.
    """
    workload = facts.problem.workload
    about = [
        SCHEMA_VERSION,
        {
            role: [shape.digest, shape.dtype] + [str(shape.placement)] * bool(shape.placement)
            for role, shape in facts.shapes.items()
        },
        [workload.task, workload.temperature, workload.top_k, workload.top_p]
        + [workload.followed_digest] * bool(workload.followed_digest),
        workload.output_tokens,
        machine if isinstance(machine, str) else {name: asdict(machine)[name] for name in _NAMED},
    ]
    name = name_of(json.dumps(about, sort_keys=True))
    return facts.problem.profiles / "tuning" / f"{name}.json"


def turns_paths(known: Mapping[str, ProblemFacts]) -> dict[str, Path]:
    """The files for plain decoding of several backends and formats, measured in turns.

    Args:
        known: facts by label, of all that took turns.
    """
    plans = {label: plans_path(facts, _machine(facts)) for label, facts in known.items()}
    others = name_of("\n".join(path.name for path in plans.values()))
    return {
        label: path.parents[1] / "turns" / f"{path.stem}-{others}.json"
        for label, path in plans.items()
    }


def known_plans(facts: ProblemFacts) -> MeasuredPlans:
    """Plans that were measured on the problem's device; none where there are none.

    Raises:
        UsageError: the file is broken.
    """
    path = plans_path(facts, _machine(facts))
    return MeasuredPlans.load(path) if path.is_file() else MeasuredPlans()


def store_plans(facts: ProblemFacts, plans: MeasuredPlans) -> Path:
    """Write the plans that were measured on the problem's device, in place of those before."""
    path = plans_path(facts, _machine(facts))
    plans.save(path)
    return path


def add_plans(facts: ProblemFacts, plans: MeasuredPlans) -> Path:
    """Write plans beside those that were measured on the problem's device, in place of older runs.

    Raises:
        UsageError: the file of earlier measurements is broken.
    """
    known = known_plans(facts)
    new = {(plan.plan, plan.batch, plan.prompt_tokens) for plan in plans.plans}
    others = [p for p in known.plans if (p.plan, p.batch, p.prompt_tokens) not in new]
    provenance = {**known.provenance, **plans.provenance}
    return store_plans(facts, MeasuredPlans((*others, *plans.plans), provenance))


def _machine(facts: ProblemFacts) -> Provenance | str:
    if facts.device.kind != "measured":
        return facts.device.name
    from specplan.cost_models.devices.measured.compiled import CompiledDevice
    from specplan.cost_models.devices.measured.device import MeasuredDevice

    assert isinstance(facts.device, MeasuredDevice | CompiledDevice), "its kind says so"
    return facts.device.provenance
