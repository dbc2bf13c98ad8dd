"""The plan of a bundle or of a problem, and the report of how it was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.ir.plan import Plan


def planned(source: Path) -> tuple[Plan, dict[str, Any]]:
    """A bundle's plan and report; for a problem file, what its bundle would hold.

    Raises:
        UsageError: the bundle or the problem is broken.
        InfeasibleError: no plan keeps the problem's limits.
    """
    return _planned(source) if source.is_file() else _bundled(source)


def _bundled(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a bundle and its report."""
    from specplan.backends.bundle import load_bundle

    opened = load_bundle(folder)
    return opened.plan, opened.report


def _planned(problem: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a problem and what a bundle would report of it."""
    from specplan import api
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        result = api.optimize(problem, progress=progress)
    return result.plan, result.search.as_dict() | {"explanation": result.explanation()}
