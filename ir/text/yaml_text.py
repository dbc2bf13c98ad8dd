"""YAML text to values, with the line of every key; duplicate keys and odd keys are refused."""

from __future__ import annotations

import re
from typing import Any

import yaml

from specplan.ir.errors import UsageError

_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """The safe loader, which also reads `2e9` and `2.0e9` as numbers (YAML 1.2 does)."""


_Quick = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, by libyaml where PyYAML was built with it: ten times as quick."""

_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def read_data(text: str) -> Any:
    """The value of a YAML document that tells data: figures, formulas, tables.

    Raises:
        yaml.YAMLError: on a syntax error or an unknown tag.
    """
    loader = _Quick(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml(text: str, file: str) -> tuple[Any, dict[str, int]]:
    """Parse one YAML document.

    Args:
        text: the document.
        file: its name, for messages.

    Returns:
        The value, and the 1-based line of each dotted key.

    Raises:
        UsageError: on a syntax error, a duplicate or non-text key, or an unknown tag.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[str, int] = {}
            if node is not None:
                _walk(node, "", lines, file, ())
            value = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _syntax_error(error, file) from error
    except ValueError as error:  # a date such as 2026-99-99, or an unprintable character
        raise UsageError(
            f"not valid YAML ({error})", where=file, remedy="Quote the value or mend it."
        ) from error
    return value, lines


def _walk(
    node: yaml.Node, key: str, lines: dict[str, int], file: str, above: tuple[yaml.Node, ...]
) -> None:
    """Note the line of every key below `node`; refuse duplicates, odd keys and cycles."""
    line = node.start_mark.line + 1
    lines.setdefault(key, line)
    if any(node is other for other in above):
        raise UsageError(
            "an alias refers to what contains it",
            where=f"{file}:{line}: {key}",
            remedy="Write the value out instead of the alias.",
        )
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, f"{key}.{index}" if key else str(index), lines, file, above)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for name, item in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode) or not name.tag.endswith(":str"):
                shown = name.value if isinstance(name, yaml.ScalarNode) else "this key"
                raise UsageError(
                    f"keys must be texts, {shown} is not",
                    where=f"{file}:{line}: {key}" if key else f"{file}:{line}",
                    remedy="Write the key as a word, quoted if need be.",
                )
            below = f"{key}.{name.value}" if key else name.value
            if name.value in seen:
                raise UsageError(
                    f"the key stands twice, first in line {seen[name.value]}",
                    where=f"{file}:{line}: {below}",
                    remedy="Keep one of the two.",
                )
            seen[name.value] = line
            lines[below] = line
            _walk(item, below, lines, file, above)


def _syntax_error(error: yaml.YAMLError, file: str) -> UsageError:
    mark = getattr(error, "problem_mark", None)
    where = file if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return UsageError(
        f"not valid YAML ({problem})",
        where=where,
        remedy="Mend the syntax there: indentation, colons, brackets, quotes.",
    )
