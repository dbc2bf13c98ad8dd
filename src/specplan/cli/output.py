"""What commands print: one JSON document, or text and tables for people."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.ir.errors import SpecplanError

UNBROKEN = 1000  # columns: piped tables are never wrapped


printed: list[bool] = []
"""An entry for each JSON document that this run of the program printed."""


def print_json(document: Any) -> None:
    """Print `document` (JSON types only, finite numbers) on stdout."""
    printed.append(True)
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def print_json_error(
    what: str, code: int, *, where: str = "", remedy: str = "", errors: Sequence[SpecplanError] = ()
) -> None:
    """Print an error as the JSON document of a command, unless the command has printed its own.

    Args:
        what: what is wrong.
        code: the exit code.
        where: the file, key, line or option concerned.
        remedy: what the user can do about it.
        errors: the single errors, where there are several.
    """
    if printed:
        return
    single = [{"what": one.what, "where": one.where, "remedy": one.remedy} for one in errors]
    error = {
        "what": what.partition("\n")[0],
        "where": where,
        "remedy": remedy,
        "code": code,
        "errors": single,
    }
    print_json({"error": error})


def print_record(record: Mapping[str, Any], indent: str = "") -> None:
    """Print the fields of one thing, a line for each; records within records are indented."""
    width = max(map(len, record), default=0)
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            print(f"{indent}{name}")
            print_record(value, f"{indent}  ")
        else:
            print(f"{indent}{name:{width}}  {_field(value)}")


def _field(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_field, value)) or "-"
    return "-" if value in (None, "", {}) else str(value)


def named(name: str, records: Iterable[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """The records of a name.

    Args:
        name: the name that a user gave.
        records: all of them; `name` of each is its name.
        what: what they are, for messages: "method".

    Raises:
        UsageError: there is none of that name.
    """
    rows = list(records)
    matches = [record for record in rows if record["name"] == name]
    if not matches:
        known = {record["name"]: None for record in rows}
        close = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f'unknown {what} "{name}"',
            remedy=f'Did you mean "{close[0]}"?' if close else f"Known: {', '.join(known)}.",
        )
    return matches


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
