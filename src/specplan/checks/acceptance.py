"""Is less of a draft accepted than before? A stored profile against a newer one."""

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
"""Part by which tokens per round may fall."""
DEPTH = 4
"""Drafted tokens of the chain that is compared."""


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
        fell: part by which tokens per round may fall.
        depth: drafted tokens of the chain that is compared.

    Raises:
        NothingToCompareError: they are of other tasks, sampling or drafters.
    """
    start = perf_counter()
    _check_comparable(base, head)
    found = drift(base, head, depth)
    status: Status = "ok"
    if found.fell(fell):
        status = "regressed"
    elif found.rose(fell):
        status = "noted"
    tokens = found.head_tokens
    finding = Finding(
        name=f"acceptance of {base.key.drafter}",
        status=status,
        summary=_summary(found, status, depth),
        details=_table(found),
        metrics=(
            Metric(
                "rounds per token", 1.0 / tokens.mean, "rounds", 1.0 / tokens.high, 1.0 / tokens.low
            ),
        ),
        seconds=perf_counter() - start,
        data=asdict(found),
    )
    return Findings("acceptance", (finding,))


def measured_now(
    problem: Path, base: AcceptanceProfile, limit: int | None, progress: Progress = silent
) -> AcceptanceProfile:
    """The acceptance of the base's drafter, measured anew whatever was stored before.

    Args:
        problem: a problem file.
        base: whose drafter is measured.
        limit: use only so many prompts.
        progress: told of every prompt.

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
        found = api.profile_acceptance(fresh, limit=limit, precision=0.0, progress=progress)
    if base.key.drafter not in found:
        raise NothingToCompareError(
            f"the problem does not measure {base.key.drafter}",
            where=str(problem),
            remedy=f"It measures: {', '.join(map(str, found)) or 'nothing'}.",
        )
    return found[base.key.drafter]


def _check_comparable(base: AcceptanceProfile, head: AcceptanceProfile) -> None:
    """The checkpoints may differ: that is what drifts; what is asked of them may not."""
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


def _summary(found: Drift, status: Status, depth: int) -> str:
    verdict = {"regressed": "less is accepted", "noted": "more is accepted"}.get(
        status, "no drift worth telling"
    )
    base, head, ratio = found.base_tokens, found.head_tokens, found.ratio
    return (
        f"{verdict}: {base.mean:.3f} -> {head.mean:.3f} tokens per round of a chain of {depth} "
        f"({ratio.mean - 1:+.1%}, {ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}, 95 %"
        f"{', the same prompts' if found.paired else ''})"
    )


def _table(found: Drift) -> str:
    """Hazards by depth with counts, one line each."""
    lines = [f"depth {level.depth}: {_depth(level)}" for level in found.depths]
    if found.p_value is not None:
        lines.append(
            f"all depths alike: p = {found.p_value:.2g} (likelihood ratio, trials as independent)"
        )
    return "\n".join(lines)


def _depth(level: DepthDrift) -> str:
    sides = zip((level.base, level.head), (level.base_counts, level.head_counts), strict=True)
    told = " -> ".join(
        f"{hazard.mean:.3f}" + (f" ({counts[0]:.0f} of {counts[1]:.0f})" if counts[1] else "")
        for hazard, counts in sides
    )
    return told + ("" if level.p_value is None else f", p = {level.p_value:.2g}")
