"""The screen of a problem: what to do, numbers, alternatives, their basis, what is next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from specplan.cli.screen.tables import numbers
from specplan.planner.answer.decision import Note, Tone, gain_lines, notes, warnings
from specplan.planner.answer.names import advice, problem_name
from specplan.planner.answer.points import remarks

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

STYLES: Mapping[Tone, str] = {
    "": "", "good": "bold green", "faint": "dim", "assumed": "yellow", "missing": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Context:
    """What a screen has to know of the command that shows it.

    Attributes:
        problem: the words of a command line that name the problem or the bundle.
        steps: commands to go on with.
        today: the day of the reader, for the age of measurements; None shows their days alone.
    """

    problem: str
    steps: Sequence[str] = ()
    today: date | None = None


def decided(
    explanation: Mapping[str, Any], console: Console, context: Context, *, whole: bool = False
) -> Iterator[RenderableType]:
    """The parts of the screen, in order.

    Args:
        explanation: from `explain`, with another verdict than `undecided`.
        console: on which it will be printed.
        context: of the command.
        whole: every operating point and alternative.
    """
    from rich.padding import Padding

    yield _text(problem_name(explanation), "dim")
    yield ""
    yield _text(advice(explanation), "bold")
    for line in (*gain_lines(explanation), *warnings(explanation)):
        yield _text(line.text, STYLES[line.tone])
    yield ""
    for part in numbers(explanation, console, whole=whole):
        yield Padding(part, (0, 0, 0, 2))
    for line in remarks(explanation, whole=whole):
        yield _text(f"  {line.text}", STYLES[line.tone])
    yield ""
    yield _labelled(notes(explanation, whole=whole, today=context.today))
    for place, step in enumerate(context.steps):
        label = _text("Next       " if place == 0 else " " * 11, "bold")
        command = label.append(step, "not bold cyan")
        command.no_wrap = True  # a command stays whole, to be copied
        yield command


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _labelled(entries: Iterator[Note]) -> RenderableType:
    """Labels at the left, what they say wrapped at the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    for note in entries:
        table.add_row(_text(note.label, "bold"), _text(note.text, STYLES[note.tone]))
    return table
