"""What commands print: one JSON document, or text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.cost_models.intervals import Interval

UNBROKEN = 1000  # columns: piped tables are never wrapped


def print_json(document: Any) -> None:
    """Print `document` (JSON types only, finite numbers) on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def interval_words(interval: Interval, form: str) -> str:
    """`mean (low to high)`, each number in the given format."""
    mean, low, high = (format(x, form) for x in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low} to {high})"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table on stdout; `columns` starting with ">" are aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=UNBROKEN)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
