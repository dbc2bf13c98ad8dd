"""`specplan calibrate`: what plans lose, and the threshold of one plan by Learn then Test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.quality.bounds import p_value
from specplan.cost_models.quality.certificate import (
    Certificate,
    Measured,
    Tested,
    read_certificate,
)
from specplan.ir.errors import InfeasibleError, UsageError
from specplan.ir.plan import Plan, ValueState
from specplan.ir.rules.verify import check_plan
from specplan.ir.values import Entry, print_atom
from specplan.problems import ProblemLike, as_problem
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.planner.problem.limits import Quality

GRID = (1.0, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Thresholds of a confidence, the safest first."""
BESIDE = ".certificate.json"
"""Ends the name of the certificate that stands beside a plan text."""


@dataclass(frozen=True)
class Calibrated:
    """A plan with its threshold, and what shows that it keeps the limit."""

    plan: Plan
    certificate: Certificate

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; the plan as text."""
        from specplan.ir.text.printer import print_plan

        return {"plan": print_plan(self.plan), "certificate": self.certificate.as_dict()}


def calibrate_plan(
    plan: Plan,
    problem: ProblemLike,
    grid: Sequence[float] = GRID,
    progress: Progress = silent,
) -> Calibrated:
    """Give the one `calibrated` number of a plan the last value of a grid that is shown to be safe.

    The values are tested in their order on the calibration prompts of the problem's quality limit,
    and testing ends at the first that is not shown to keep it (fixed-sequence testing).

    Args:
        plan: with `state ... = value calibrated(init=)`.
        problem: names the models, the prompts and `limits.quality`.
        grid: values, the safest first.
        progress: called for every batch of prompts.

    Raises:
        UsageError: the plan has no such number or several, or the problem limits no quality.
        InfeasibleError: not even the first value is shown to keep the limit.
    """
    checked = as_problem(problem)
    quality = checked.limits.quality
    if quality is None:
        raise UsageError(
            "the problem does not say what the output may lose",
            where="limits.quality",
            remedy="Write limits: {quality: {measure: outputs_differ, at_most: 0.05}}.",
        )
    state = _calibrated_state(plan)
    from specplan.gathering import open_bench

    bench, _ = open_bench(checked)
    from specplan.measure.quality.calibrate import measure_losses

    grown: list[tuple[Plan, Measured, Tested]] = []
    for value in grid:
        one = check_plan(_with_value(plan, state, value, quality))
        key = rounds_key(one)
        loss = measure_losses(bench, [one], progress)[key]
        chance = p_value(loss.calibration, quality.at_most / loss.most)
        mean = loss.most * sum(loss.calibration) / len(loss.calibration)
        words = f"@{state.name} = {print_atom(float(value))}"
        grown.append((one, loss, Tested(key, words, mean, chance, chance <= quality.risk)))
        if chance > quality.risk:
            break
    safe = [entry for entry in grown if entry[2].keeps]
    if not safe:
        first = grown[0][2]
        raise InfeasibleError(
            f"{first.words} is not shown to keep the limit: it loses {first.loss:.3g}, p = "
            f"{first.p_value:.2g}, and the risk is {quality.risk:g}",
            where="limits.quality.at_most",
            remedy="Loosen the limit, give more prompts, or begin the grid with a safer value.",
        )
    chosen, loss, _ = safe[-1]
    digests = {role: bench.models[role].digest for role in chosen.models_run}
    return Calibrated(
        chosen, _certificate(chosen, loss, quality, tuple(one for *_, one in grown), digests, bench)
    )


def _certificate(
    plan: Plan,
    loss: Measured,
    quality: Quality,
    grid: tuple[Tested, ...],
    digests: dict[str, str],
    bench: Any,
) -> Certificate:
    from specplan.planner.quality.limit import measure_name

    workload = bench.problem.workload
    return Certificate(
        plan=rounds_key(plan),
        models=digests,
        sampling=(float(workload.temperature), workload.top_k, float(workload.top_p)),
        measure=measure_name(quality),
        at_most=quality.at_most,
        risk=quality.risk,
        data=loss.data,
        grid=grid,
        mean=loss.mean,
        bound=loss.bound(quality.risk),
        samples=len(loss.report),
    )


def _calibrated_state(plan: Plan) -> ValueState:
    states = [s for s in plan.states if isinstance(s, ValueState) and s.kind.name == "calibrated"]
    if len(states) != 1:
        raise UsageError(
            f"the plan has {len(states)} calibrated numbers, and one can be found along a grid",
            where=f"plan {plan.name}",
            remedy="Declare it: state @bar = value calibrated(init=1.0).",
        )
    return states[0]


def _with_value(plan: Plan, state: ValueState, value: float, quality: Quality) -> Plan:
    """The plan with another number, which promises the limit."""
    from specplan.planner.quality.limit import promise

    changed = replace(state, kind=Entry("calibrated", (("init", float(value)),)))
    states = tuple(changed if one is state else one for one in plan.states)
    return replace(plan, states=states, assumptions=replace(plan.assumptions, law=promise(quality)))


def certificate_beside(path: Path) -> Certificate | None:
    """The certificate of a plan text, from the file beside it; None where there is none.

    Raises:
        UsageError: the file holds something else.
    """
    beside = path.with_name(path.name + BESIDE)
    return read_certificate(beside) if beside.is_file() else None


def write_calibrated(calibrated: Calibrated, out: Path) -> None:
    """Write a plan text, and its certificate beside it."""
    from specplan.ir.files import write_atomic
    from specplan.ir.text.printer import print_plan

    write_atomic(out, print_plan(calibrated.plan))
    calibrated.certificate.save(out.with_name(out.name + BESIDE))
