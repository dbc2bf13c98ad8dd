"""Names are nouns of the field: words that name nothing are in no name, and rooms are rooms.

The name of a test is a sentence, which may have participles; what a test assigns has a noun.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.test_house import REPOSITORY, source_files

EMPTY = {"found", "told", "held", "kept", "said", "apart", "unlike", "hopeful"}
"""Participles that stand for any value at all; `held_out` is the field's, for unseen texts."""
FORMER = {
    "Clock", "Growing", "Judge", "Leg", "Moment", "Proposer", "Rehearsed", "Stretch", "Turns",
    "in_way", "kept_by", "looked_up", "read_legs", "rehearse", "who_drafts",
}  # fmt: skip
"""Identifiers of before, each with a better word now (`docs/architecture.md`, Words)."""
ONE_KIND = re.compile(
    r"(^|/)(methods|ops|rules|sources|published|evidence|architectures|importers|kernels|engines"
    r"|cli|acceptance|laws)$"
)
"""Folders that hold one kind of thing: as many files as there are things."""
BESIDE = ("benchmarks", "examples", "tests")
"""Folders beside the source whose names are held to the same."""
MOST_MODULES = 12
LONGEST_FUNCTION = 60


def names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module gives: of variables, parameters, functions, classes, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def is_empty(name: str) -> bool:
    words = name.lower().replace("held_out", "").strip("_").split("_")
    return bool(EMPTY & set(words))


class Named(NamedTuple):
    """The names that a module gives, and its functions that are too long."""

    names: frozenset[str]
    long: tuple[str, ...]


@cache
def named(path: Path) -> Named:
    """What a module names; its tree is let go, since a million nodes slow every later one down."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    long = (
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > LONGEST_FUNCTION
    )
    return Named(frozenset(names(tree)), tuple(long))


def test_names_say_something() -> None:
    """A value is named by the noun of what it is."""
    empty: dict[str, set[str]] = {}
    beside = (
        path.relative_to(REPOSITORY)
        for folder in BESIDE
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if "reference_models" not in path.parts
    )
    for path in (*source_files(".py"), *beside):
        given = {*named(path).names, path.stem}
        if path.parts[0] == "tests":
            given = {name for name in given if not name.startswith("test_")}
        if words := {name for name in given if is_empty(name)} | (given & FORMER):
            empty[str(path)] = words
    assert not empty


def test_functions_are_short() -> None:
    """Kernels aside, whose parameters alone fill a page."""
    long = [
        f"{path}: {name}"
        for path in source_files(".py")
        if path.parts[:2] != ("backends", "kernels")
        for name in named(path).long
    ]
    assert not long


def test_rooms_are_not_corridors() -> None:
    modules = Counter(
        path.parent.as_posix() for path in source_files(".py") if path.name != "__init__.py"
    )
    crowded = {room: size for room, size in modules.items() if size > MOST_MODULES}
    assert not {room for room in crowded if not ONE_KIND.search(room)}
