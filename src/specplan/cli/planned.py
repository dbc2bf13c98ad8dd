"""The plan of a bundle or of a problem, and the report of how it was chosen."""

from __future__ import annotations

from collections.abc import Iterable
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


def next_steps(
    source: object, backends: Iterable[str], bundle: Path | None = None, *, compiles: bool = False
) -> list[str]:
    """The commands that a decision leads to.

    Args:
        source: the bundle or problem in the words of a command line.
        backends: of the problem.
        bundle: that holds the decision; a problem alone cannot run.
        compiles: a backend of the problem compiles.
    """
    from specplan.planner.problem.setting_checks import known_engines

    steps = [] if bundle is None else [f"specplan run {bundle} --prompt-file FILE"]
    steps += [f"specplan compile {bundle}"] if compiles and bundle is not None else []
    engines = [name for name in backends if name in known_engines()]
    steps += [f"specplan emit {source} --engine {name} --out {name}" for name in engines]
    return [*steps, f"specplan explain {bundle or source} --show all   (or plan)"]


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
