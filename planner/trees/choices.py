"""Choice lists: trees as lists of paths, [[0], [0, 0], [1], ...], as Medusa and EAGLE ship them.

The format is that of `medusa_choices.py` and `choices.py` in the repositories of Medusa (arXiv
2401.10774) and EAGLE (arXiv 2401.15077), which TensorRT-LLM reads too: Python files that assign
such lists to names. Nothing is executed: the text is parsed and only literals are evaluated.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text, write_atomic
from specplan.planner.trees.shape import StaticTree, tree_of_paths


def read_choices(path: Path | str, name: str | None = None) -> StaticTree:
    """Read a tree from a JSON list, or from a Python file that assigns such lists to names.

    Args:
        path: the file.
        name: which of the lists; needed where there are several.

    Raises:
        UsageError: when there is no such list, it is no list of paths, or a node stands without
            its parent or its elder sibling.
    """
    text = read_text(path, "choice list")
    lists = _lists(text, str(path))
    if name is None and len(lists) == 1:
        name = next(iter(lists))
    if name not in lists:
        known = ", ".join(lists) or "none"
        raise UsageError(
            f"no choice list {name!r}" if name else "which of its choice lists is not said",
            where=str(path),
            remedy=f"Name one of: {known}.",
        )
    return tree_of_choices(lists[name], f"{path}: {name}" if name else str(path))


def tree_of_choices(choices: Any, where: str) -> StaticTree:
    """The tree of a list of paths.

    Raises:
        UsageError: when it is none, or a node stands without its parent or its elder sibling.
    """
    if not isinstance(choices, list | tuple) or not all(map(_is_path, choices)):
        raise UsageError(
            "a choice list is a list of paths, each a list of ranks from 0",
            where=where,
            remedy="Write it as [[0], [0, 0], [1]].",
        )
    try:
        return tree_of_paths([tuple(path) for path in choices])
    except ValueError as error:
        raise UsageError(
            str(error), where=where, remedy="Add what it stands on: children are drawn in order."
        ) from None


def write_choices(path: Path | str, tree: StaticTree) -> None:
    """Write a tree as a JSON list of paths, in level order, which Python reads as well."""
    paths = tree.paths
    write_atomic(path, json.dumps([list(ranks) for ranks in paths]) + "\n")


def _is_path(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in value)


def _lists(text: str, where: str) -> dict[str, Any]:
    """The lists of a file by name; a bare list has the name ""."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            "it is neither JSON nor Python", where=where, remedy="Give a list of paths."
        ) from None
    found: dict[str, Any] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.Expr(value=ast.List() as value):
                name = ""
            case _:
                continue
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return {name: value for name, value in found.items() if isinstance(value, list | tuple)}
