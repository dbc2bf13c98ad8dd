"""Prints the screen, or with `--show` what lies behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from specplan.cli.screen.decided import Context
    from specplan.ir.plan import Plan

PIPE_WIDTH = 100


class Show(StrEnum):
    """What lies behind the default screen."""

    NOT_TRIED = "not-tried"
    PLAN = "plan"
    ALL = "all"


ShowOption = Annotated[
    Show | None,
    typer.Option(
        "--show",
        help="Instead of the short answer: the plan as text, why other plans were not tried, "
        "or everything.",
    ),
]


def check_show(show: Show | None, *, json: bool) -> None:
    """Refuse two answers.

    Raises:
        UsageError: `--show` is given with `--json`, whose document has everything.
    """
    if show is not None and json:
        raise UsageError(
            "--show and --json cannot be combined",
            where=f"--show {show.value}",
            remedy="Leave one out; the JSON document has everything.",
        )


def new_console() -> Console:
    """The terminal with its width and colours; in a pipe plain text of 100 columns."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=PIPE_WIDTH, color_system=None)


def print_screen(
    explanation: Mapping[str, Any],
    context: Context,
    plan: Plan | None,
    show: Show | None = None,
) -> None:
    """Print an explanation, or the part of it that `show` names.

    Args:
        explanation: from `explain`, or read back from a bundle's report.
        context: of the command.
        plan: that was chosen; None for an undecided problem.
        show: what was asked for instead of the screen.
    """
    from specplan.cli.screen.picture import picture_lines
    from specplan.ir.text.printer import print_plan
    from specplan.planner.answer.not_tried import not_tried_lines
    from specplan.planner.explain.words import reason_words

    undecided = explanation["verdict"] == "undecided"
    if show is Show.PLAN and plan is not None and not undecided:
        print(print_plan(plan))
        return
    if show is Show.NOT_TRIED:
        print("\n".join(not_tried_lines(explanation)))
        return
    console, whole = new_console(), show is Show.ALL
    if whole and plan is not None and not undecided:
        print(print_plan(plan))
        print("\n".join(picture_lines(explanation)))
    print_parts(console, screen_parts(explanation, console, context, whole=whole))
    if whole and not undecided:
        print()
        print("\n".join(reason_words(explanation)))


def screen_parts(
    explanation: Mapping[str, Any], console: Console, context: Context, *, whole: bool = False
) -> Iterator[RenderableType]:
    """The screen of an explanation, whatever its verdict; see `decided`."""
    from rich.text import Text

    from specplan.cli.screen.decided import decided
    from specplan.planner.answer.names import problem_name
    from specplan.planner.explain.what_if_words import undecided_lines

    if explanation["verdict"] != "undecided":
        yield from decided(explanation, console, context, whole=whole)
        return
    yield Text(problem_name(explanation), style="dim")
    yield ""
    first, *others = undecided_lines(explanation, whole=whole)
    yield Text(first, style="bold red")
    for line in others:
        yield Text(line.replace("PROBLEM", context.problem), no_wrap=True)


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print renderables without blanks at the ends of lines."""
    from rich.text import Text

    with console.capture() as capture:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    for line in capture.get().splitlines():
        console.file.write(line.rstrip() + "\n")
