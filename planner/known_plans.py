"""Where measured plans are kept, and those that a problem's device may take for its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from specplan.cost_models.timing.measured import MeasuredDevice
from specplan.cost_models.timing.measured_table import Provenance
from specplan.ir.files import sha256_bytes
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured_plans import SCHEMA_VERSION, MeasuredPlans


def plans_path(facts: ProblemFacts, machine: Provenance) -> Path:
    """The file for these models, this sampling and task, on this machine and its software."""
    workload = facts.problem.workload
    about = [
        SCHEMA_VERSION,
        {role: [shape.digest, shape.dtype] for role, shape in facts.shapes.items()},
        [workload.task, workload.temperature, workload.top_k, workload.top_p],
        workload.output_tokens,
        {name: asdict(machine)[name] for name in ("hardware", "backend", "threads", "versions")},
    ]
    name = sha256_bytes(json.dumps(about, sort_keys=True).encode())[:16]
    return facts.problem.profiles / "tuning" / f"{name}.json"


def known_plans(facts: ProblemFacts) -> MeasuredPlans:
    """Plans that were measured on the machine that the device was measured on; else none.

    Raises:
        UsageError: the file is broken.
    """
    if not isinstance(facts.device, MeasuredDevice):
        return MeasuredPlans()
    path = plans_path(facts, facts.device.provenance)
    return MeasuredPlans.load(path) if path.is_file() else MeasuredPlans()
