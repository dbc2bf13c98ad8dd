"""Losses of the plans of a problem, measured once and stored under its `profiles` folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.quality.certificate import Measured
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import read_json, write_json_atomic
from specplan.ir.plan import Plan
from specplan.measure.acceptance.exits import losses_along, trace_for
from specplan.measure.progress import Progress, silent
from specplan.measure.quality.losses import is_replayed, losses, most_loss, replayed_texts
from specplan.measure.quality.prompts import Parts, quality_parts
from specplan.measure.workbench import Workbench


def measure_losses(
    bench: Workbench,
    plans: Sequence[Plan],
    progress: Progress = silent,
    *,
    leave_out: bool = False,
) -> dict[str, Measured]:
    """What each plan loses on the prompts of the problem's quality limit, by its key.

    Stored losses of the same plan, models, prompts and measure are read; new ones are stored plan
    by plan, so that a run that was stopped continues. Plans that differ in their thresholds alone
    are replayed on one traced run of the target where that is exact (`is_replayed`).

    Args:
        bench: of a problem with a quality limit.
        plans: verified plans that the interpreter runs.
        progress: called for every batch of prompts.
        leave_out: a plan to which the measure cannot be applied is left out.

    Raises:
        UsageError: there are too few prompts.
        MissingCapabilityError: the measure cannot be applied to a plan.
    """
    parts, quality = quality_parts(bench), bench.problem.limits.quality
    assert quality is not None, "there is a limit to test"
    paths = [path_of(bench, parts, plan) for plan in plans]
    new = [plan for plan, path in zip(plans, paths, strict=True) if not path.is_file()]
    replayed = [plan for plan in new if is_replayed(quality, plan)]
    texts = replayed_texts(bench, parts, progress) if replayed else []
    trace_for(bench, replayed, texts, progress)
    measured = {}
    for plan, path in zip(plans, paths, strict=True):
        if plan in replayed:
            store(path, losses_along(bench, plan, texts), plan)
        elif plan in new:
            try:
                store(path, losses(bench, parts, plan, progress), plan)
            except MissingCapabilityError:
                if leave_out:
                    continue
                raise
        measured[rounds_key(plan)] = read(bench, parts, path)
    return measured


def path_of(bench: Workbench, parts: Parts, plan: Plan) -> Path:
    """The file of a plan's losses."""
    quality, workload = bench.problem.limits.quality, bench.problem.workload
    assert quality is not None, "there is a limit to test"
    about = quality.model_dump(mode="json", exclude={"at_most", "risk", "prompts"})
    sampling = workload.temperature, workload.top_k, workload.top_p, bench.problem.seed
    key = rounds_key(plan)
    name = bench.fingerprint(key, about, sampling, bench.output_tokens, parts.digests)
    return bench.problem.profiles / "quality" / f"{plan.name}-{name}.json"


def store(path: Path, losses_of_all: Sequence[float], plan: Plan) -> None:
    """Write the losses of all prompts of both parts, in their order."""
    document = {"schema_version": 1, "plan": rounds_key(plan), "losses": list(losses_of_all)}
    write_json_atomic(path, document)


def read(bench: Workbench, parts: Parts, path: Path) -> Measured:
    """Stored losses."""
    quality = bench.problem.limits.quality
    assert quality is not None, "there is a limit to test"
    stored = tuple(map(float, read_json(path, "stored losses")["losses"]))
    first, second = stored[: parts.calibration], stored[parts.calibration :]
    return Measured(first, second, most_loss(quality), parts.digests)
