"""The plan of a bundle or of a problem, and the report of how it was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text

if TYPE_CHECKING:
    from specplan.cli.options import ProblemSource
    from specplan.ir.plan import Plan
    from specplan.problems import ProblemLike


def read_plan(path: Path) -> Plan:
    """A plan out of a text file; it is not verified.

    Raises:
        UsageError: the file cannot be read, or is no plan text; names the file and the line.
    """
    from specplan.ir.text.parser import parse_plan

    text = read_text(path, "plan")
    try:
        return parse_plan(text)
    except UsageError as error:
        raise UsageError(error.what, where=f"{path}, {error.where}", remedy=error.remedy) from None


def planned(source: ProblemSource) -> tuple[Plan, dict[str, Any]]:
    """A bundle's plan and report; for a problem file, what its bundle would hold.

    Raises:
        UsageError: the bundle or the problem is broken.
        InfeasibleError: no plan keeps the problem's limits.
    """
    if source.path is None or source.changed or source.path.is_file():
        return _planned(source.problem())
    return _bundled(source.path)


def _bundled(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a bundle and its report."""
    from specplan.backends.bundle import load_bundle

    opened = load_bundle(folder)
    return opened.plan, opened.report


def _planned(problem: ProblemLike) -> tuple[Plan, dict[str, Any]]:
    """The plan of a problem and what a bundle would report of it."""
    from specplan import api
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        result = api.optimize(problem, progress=progress)
    return result.plan, result.search.as_dict() | {"explanation": result.explanation()}
