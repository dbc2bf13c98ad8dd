"""What a benchmark of a bundle compares: plans from its report, with their predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.bundles.report import reading_report
from specplan.cost_models.forecast import Forecast
from specplan.ir.text.parser import parse_plan
from specplan.planner import PLAIN

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.ir.plan import Plan
    from specplan.planner.problem.schema import Problem


def problem_of(bundle: Bundle, prompts: Path | str | None = None) -> Problem:
    """The problem that a bundle answers, perhaps with other prompts.

    Raises:
        UsageError: something that the problem names is no longer there; names the key.
    """
    from specplan.planner.problem.loading import problem_from_dict

    data = dict(bundle.problem)
    if prompts is not None:
        data["workload"] = data["workload"] | {"prompts": str(Path(prompts).resolve())}
    return problem_from_dict(data, bundle.folder)


def contestants(
    bundle: Bundle, batch: int, *, kinds: bool = False
) -> dict[str, tuple[Plan, Forecast | None]]:
    """Plans to compare and their forecasts at `batch`, by name.

    Args:
        bundle: with its report.
        batch: requests decoded together; nothing is forecast where the report has no such batch.
        kinds: take the best candidate of every other family too.

    Returns:
        `autoregressive` first, then the chosen plan, then the others.

    Raises:
        UsageError: the report is damaged.
    """
    with reading_report(bundle):
        return _contestants(bundle.report, batch, kinds)


def _contestants(
    report: Mapping[str, Any], batch: int, kinds: bool
) -> dict[str, tuple[Plan, Forecast | None]]:
    candidates = report["candidates"]
    chosen = candidates[report["chosen"]]
    entries = {PLAIN: _entry(candidates[report["plain"]], batch)}
    entries[_name(chosen)] = _entry(chosen, batch)
    if kinds:
        for summary in report["explanation"]["runners_up"]:
            (candidate,) = (c for c in candidates if _same(c, summary))
            if candidate["family"] != chosen["family"] and not candidate.get("unsupported"):
                entries[_name(candidate)] = _entry(candidate, batch)
    return entries


def chosen_name(bundle: Bundle) -> str:
    """What `contestants` calls the chosen plan."""
    with reading_report(bundle):
        return _name(bundle.report["candidates"][bundle.report["chosen"]])


def _name(candidate: dict[str, Any]) -> str:
    if candidate["method"] == PLAIN:
        return PLAIN
    return f"{candidate['method']}: {candidate['words']}"


def _same(candidate: dict[str, Any], summary: dict[str, Any]) -> bool:
    return all(candidate[key] == summary[key] for key in ("method", "family", "options"))


def _entry(candidate: dict[str, Any], batch: int) -> tuple[Plan, Forecast | None]:
    predicted = [
        Forecast.from_dict(estimate)
        for estimate in candidate["estimates"]
        if estimate["batch"] == batch
    ]
    return parse_plan(candidate["plan"]), predicted[0] if predicted else None
