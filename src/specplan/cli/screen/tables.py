"""The numbers of the screen: one point, a table over batch sizes, or matrices of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specplan.planner.answer.points import (
    QUANTITY_HEADS,
    Point,
    columns,
    matrices,
    prompts_of,
    quantities,
)
from specplan.planner.explain.what_if_words import spread_out

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

MOST_ROWS, MOST_MATRIX_ROWS = 8, 4
"""Batch sizes in a table and in each matrix, unless all are wanted."""


def numbers(
    explanation: Mapping[str, Any], console: Console, *, whole: bool
) -> Iterator[RenderableType]:
    """The tables of a decided problem, as wide as the console allows.

    Args:
        explanation: from `explain`.
        console: whose width decides which columns are there.
        whole: all batch sizes; else at most as many as leave the screen short.
    """
    points = explanation["points"]
    if len(points) == 1:
        yield _one_point(explanation, points[0])
    elif len(prompts_of(explanation)) == 1:
        yield from _by_batch(explanation, console, whole)
    else:
        yield from _matrices(explanation, console, whole)


def _grid(*, head: bool) -> Table:
    from rich.table import Table

    return Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=head, header_style="dim"
    )


def _one_point(explanation: Mapping[str, Any], point: Point) -> Table:
    """A line per quantity: without and with speculation, and the gain."""
    table = _grid(head=True)
    for name in QUANTITY_HEADS:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in quantities(explanation, point):
        table.add_row(*row)
    return table


def _by_batch(
    explanation: Mapping[str, Any], console: Console, whole: bool
) -> Iterator[RenderableType]:
    """A row per batch size; columns that do not fit are left out, the last ones first."""
    points = explanation["points"]
    rows = spread_out(points, len(points) if whole else MOST_ROWS)
    shown = columns(explanation, rows)
    for rank in (9, 4, 3, 2, 1):
        shown = [column for column in shown if column.rank < rank]
        groups = ["", *(column.head[0] for column in shown)]
        table = _grid(head=True)
        for column, (before, group) in zip(shown, pairwise(groups), strict=True):
            first = "" if group == before else group
            second = f"\n{column.head[1]}" if column.head[1] or column.rank else ""
            table.add_column(first + second, justify="right", no_wrap=True)
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        if console.measure(table).maximum + 2 <= console.width:
            break
    yield table
    yield from _more((len(points) - len(rows), "batch sizes"))


def _matrices(
    explanation: Mapping[str, Any], console: Console, whole: bool
) -> Iterator[RenderableType]:
    """Rows batch sizes, columns prompt lengths: the gain with K, then TPOT."""
    batches = sorted({point["batch"] for point in explanation["points"]})
    prompts = prompts_of(explanation)
    rows = spread_out(batches, len(batches) if whole else MOST_MATRIX_ROWS)
    shown = spread_out(prompts, len(prompts) if whole else max(2, (console.width - 12) // 15))
    for matrix in matrices(explanation, rows, shown, requests=whole):
        yield f"[bold]{matrix.title}[/bold]; rows requests, columns prompt tokens"
        table = _grid(head=True)
        for head in ("", *map(str, matrix.prompts)):
            table.add_column(head, justify="right", no_wrap=True)
        for batch, cells in matrix.rows:
            table.add_row(str(batch), *cells)
        yield table
    counts = (
        (len(batches) - len(rows), "batch sizes"),
        (len(prompts) - len(shown), "prompt lengths"),
    )
    yield from _more(*counts)


def _more(*counts: tuple[int, str]) -> Iterator[str]:
    """What was left out to keep the screen short."""
    parts = [f"{count} more {what}" for count, what in counts if count > 0]
    if parts:
        yield f"[dim]{' and '.join(parts)}: --show all[/dim]"
