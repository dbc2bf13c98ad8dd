"""What prices, rewrites and runs plans knows ops, and no method by its name.

A layer that asks for a method has its name in a string, as the name of a plan, of a problem file or
of an option: those are looked for, docstrings left out. Some names are words of something else too;
what else is read off the tables that declare it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specplan.ir.tables.builtin import BUILTIN
from specplan.planner.method import discover_methods

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ("ir", "passes", "cost_models", "backends")
METHODS = frozenset(discover_methods())
FORMATS = {
    "backends/engines/checkpoints.py": {"eagle3"},
    "cost_models/models/heads/eagle.py": {"eagle3"},
    "cost_models/models/heads/own_modules.py": {"mtp"},
    "cost_models/models/heads/reading.py": {"eagle3", "mtp"},
    "cost_models/acceptance/draft_sources.py": {"suffix"},
}
"""Files that read what others write, and the words that stand in it: of published formats, and of a
problem's `sources`."""


def files() -> list[Path]:
    paths = (path for folder in FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py")))
    return [path.relative_to(REPOSITORY) for path in paths]


def named_in(source: str, names: frozenset[str] = METHODS) -> Iterator[tuple[int, str]]:
    """(line, name) of every string that is a method's name, and of identifiers that hold one.

    Identifiers are compared with names of several words alone: `rest` and `suffix` are English.
    """
    nodes = list(ast.walk(ast.parse(source)))
    long = re.compile(
        "|".join(rf"(?<![a-zA-Z]){name}(?![a-zA-Z])" for name in names if "_" in name)
    )
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        for _, word in ast.iter_fields(node):
            if not isinstance(word, str) or id(node) in prose:
                continue
            if long.search(word) or (isinstance(node, ast.Constant) and word in names):
                yield getattr(node, "lineno", 0), word


def words_of(path: Path) -> set[str]:
    """Names of methods that mean something else in a file.

    A rule of acceptance, or a law that logits are combined by; what an engine calls things in its
    own configuration, as its schema says; what stands in a published format.
    """
    words = {*BUILTIN.names("rule"), *BUILTIN.names("law")} | FORMATS.get(path.as_posix(), set())
    schema = REPOSITORY / path.with_suffix(".schema.json")
    if schema.is_file():
        words |= set(strings(json.loads(schema.read_text(encoding="utf-8"))))
    return words


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_names_a_method(folder: str) -> None:
    paths = [path for path in files() if path.parts[0] == folder]
    assert paths
    named = [
        f"{path}:{line}: {name}"
        for path in paths
        for line, name in named_in((REPOSITORY / path).read_text(encoding="utf-8"))
        if name not in words_of(path)
    ]
    assert not named, "what a layer must know of a plan stands in its ops"


def test_a_name_is_found_wherever_code_could_ask_for_it() -> None:
    code = '''"""Jacobi: jacobi, early_exit."""
if plan.name == "jacobi" or plan.name in {"early_exit": 1}:
    early_exit_cost(f"{rest} of early_exit")
    "a string beside a statement: early_exit"
rest = suffix
'''
    named = sorted(named_in(code, frozenset({"jacobi", "early_exit", "rest", "suffix"})))
    assert named == [
        (2, "early_exit"),
        (2, "jacobi"),
        (3, " of early_exit"),
        (3, "early_exit_cost"),
    ]


def test_words_of_formats_are_in_use() -> None:
    for path, words in FORMATS.items():
        used = {name for _, name in named_in((REPOSITORY / path).read_text(encoding="utf-8"))}
        assert words <= used, f"{path} no longer needs them"
