"""Acceptance that fell: a stored profile against a newer one."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from specplan.checks.findings import Finding, Findings, Metric, Status
from specplan.cost_models.acceptance.drift import DepthDrift, Drift, drift
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.errors import NothingToCompareError
from specplan.problems import as_problem
from specplan.progress import Progress, silent

FELL = 0.02
"""Largest relative drop of tokens per round."""
DEPTH = 4
"""Draft tokens of the compared chain."""


def check_acceptance(
    base: AcceptanceProfile,
    head: AcceptanceProfile,
    *,
    fell: float = FELL,
    depth: int = DEPTH,
) -> Findings:
    """Compare two profiles of one drafter.

    Args:
        base: the older one.
        head: the newer one.
        fell: largest relative drop of tokens per round.
        depth: draft tokens of the compared chain.

    Raises:
        NothingToCompareError: they differ in task, sampling or drafter.
    """
    start = perf_counter()
    _check_comparable(base, head)
    drifted = drift(base, head, depth)
    status: Status = "ok"
    if drifted.fell(fell):
        status = "regressed"
    elif drifted.rose(fell):
        status = "noted"
    tokens = drifted.head_tokens
    finding = Finding(
        name=f"acceptance of {base.key.drafter}",
        status=status,
        summary=_summary(drifted, status, depth),
        details=_table(drifted),
        metrics=(
            Metric(
                "rounds per token", 1.0 / tokens.mean, "rounds", 1.0 / tokens.high, 1.0 / tokens.low
            ),
        ),
        seconds=perf_counter() - start,
        data=asdict(drifted),
    )
    return Findings("acceptance", (finding,))


def measured_now(
    problem: Path, base: AcceptanceProfile, limit: int | None, progress: Progress = silent
) -> AcceptanceProfile:
    """The acceptance of the base's drafter, measured again whatever was stored before.

    Args:
        problem: a problem file.
        base: a profile of the drafter to measure.
        limit: most prompts to use.
        progress: called for every prompt.

    Raises:
        NothingToCompareError: the problem does not measure that drafter.
    """
    from specplan import api

    checked = as_problem(problem)
    given = {
        str(drafter): stated
        for drafter, stated in checked.stated_acceptance.items()
        if drafter != base.key.drafter
    }
    with tempfile.TemporaryDirectory() as folder:
        fresh = checked.model_copy(update={"profiles": Path(folder), "acceptance": given})
        profiles = api.profile_acceptance(fresh, limit=limit, precision=0.0, progress=progress)
    if base.key.drafter not in profiles:
        raise NothingToCompareError(
            f"the problem does not measure {base.key.drafter}",
            where=str(problem),
            remedy=f"It measures: {', '.join(map(str, profiles)) or 'nothing'}.",
        )
    return profiles[base.key.drafter]


def _check_comparable(base: AcceptanceProfile, head: AcceptanceProfile) -> None:
    """The checkpoints may differ, since their drift is compared; the task and sampling may not."""
    named = ("drafter", "task", "temperature", "top_k", "top_p", "how")
    differences = [
        f"{name}: {getattr(base.key, name)!r} against {getattr(head.key, name)!r}"
        for name in named
        if getattr(base.key, name) != getattr(head.key, name)
    ]
    if differences:
        raise NothingToCompareError(
            f"the two profiles are about different things ({differences[0]})",
            where="specplan check acceptance",
            remedy="Compare profiles of one drafter, task and sampling.",
        )


def _summary(drifted: Drift, status: Status, depth: int) -> str:
    verdict = {"regressed": "less is accepted", "noted": "more is accepted"}.get(
        status, "no drift beyond the interval"
    )
    base, head, ratio = drifted.base_tokens, drifted.head_tokens, drifted.ratio
    return (
        f"{verdict}: {base.mean:.3f} -> {head.mean:.3f} tokens per step with K={depth} "
        f"({ratio.mean - 1:+.1%}, {ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}, 95 %"
        f"{', the same prompts' if drifted.paired else ''})"
    )


def _table(drifted: Drift) -> str:
    """Hazards by depth with counts, one line each."""
    lines = [f"depth {level.depth}: {_depth(level)}" for level in drifted.depths]
    if drifted.p_value is not None:
        lines.append(
            f"all depths alike: p = {drifted.p_value:.2g} (likelihood ratio, trials as independent)"
        )
    return "\n".join(lines)


def _depth(level: DepthDrift) -> str:
    sides = zip((level.base, level.head), (level.base_counts, level.head_counts), strict=True)
    change = " -> ".join(
        f"{hazard.mean:.3f} "
        + (f"({counts[0]:.0f} of {counts[1]:.0f})" if counts[1] else "(not counted)")
        for hazard, counts in sides
    )
    return change + ("" if level.p_value is None else f", p = {level.p_value:.2g}")
