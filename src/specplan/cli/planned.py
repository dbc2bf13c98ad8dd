"""The plan of a bundle or of a problem, and the report of how it was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text

if TYPE_CHECKING:
    from specplan.cli.options import ProblemSource
    from specplan.ir.plan import Plan
    from specplan.planner.problem.schema import Problem
    from specplan.problems import ProblemLike

PlannedArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR|PLAN.txt",
        help="A bundle that `specplan optimize` wrote, or a plan text.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME=DIR",
        help="With a plan text: the checkpoint of one of its models; once for each model.",
    ),
]
ProblemOption = Annotated[
    Path | None,
    typer.Option(
        "--problem",
        metavar="FILE",
        help="With a plan text: the problem whose models, device and workload it is priced for.",
    ),
]


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


def is_plan_text(path: Path | None) -> bool:
    """Whether a file begins as plan texts do; a problem file and a bundle do not."""
    if path is None or not path.is_file():
        return False
    lines = (line.partition("#")[0].strip() for line in read_text(path, "file").splitlines())
    return next((line.split()[0] for line in lines if line), "") == "plan"


def checkpoints(models: Sequence[str]) -> dict[str, Path]:
    """Folders by model, of options such as `target=models/large`."""
    folders: dict[str, Path] = {}
    for option in models:
        name, _, folder = option.partition("=")
        if not name or not folder or name in folders:
            raise UsageError(
                f"a model {'is named twice' if name in folders else 'comes as NAME=DIR'}",
                where=f"--model {option}",
                remedy="Give each model of the plan one folder, such as --model target=DIR.",
            )
        folders[name] = Path(folder)
    return folders


def edited(source: ProblemSource, problem: Path | None) -> tuple[Plan, Problem | Path] | None:
    """The plan text that a command was given, with its problem; None where it is none.

    Args:
        source: the command's argument, a plan text or not, and flags that describe a problem.
        problem: the file that `--problem` names.

    Raises:
        UsageError: the text is no plan, it has no problem, or there is a problem and no plan text.
    """
    from specplan.cli.options import ProblemSource

    if source.path is None or not is_plan_text(source.path):
        if problem is not None:
            raise UsageError(
                "this goes with a plan text",
                where=f"--problem {problem}",
                remedy="Give the problem file as the argument instead.",
            )
        return None
    priced_for = ProblemSource(problem, source.short, source.settings)
    if priced_for.empty:
        raise UsageError(
            "a plan text is priced for a problem, and none is given",
            where=str(source.path),
            remedy="Name one by --problem FILE; `specplan init` writes one.",
        )
    return read_plan(source.path), priced_for.problem()


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


def planned(source: ProblemSource, problem: Path | None = None) -> tuple[Plan, dict[str, Any]]:
    """A bundle's plan and report; for a problem or a plan text, what its bundle would hold.

    Args:
        source: a bundle, a problem, or a plan text.
        problem: of a plan text.

    Raises:
        UsageError: the bundle or the problem is broken.
        InfeasibleError: no plan keeps the problem's limits.
    """
    written = edited(source, problem)
    if written is not None:
        from specplan.edited import price_edited
        from specplan.progress import terminal_progress

        with terminal_progress() as progress:
            result = price_edited(*written, progress)
        return result.plan, result.search.as_dict() | {"explanation": result.explanation()}
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
