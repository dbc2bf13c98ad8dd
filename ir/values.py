"""The atoms of the plan language: names, spans, ranges and table entries.

Everything that can stand to the right of `=` in plan text is one of: `int`, `float`, `bool`,
a word (`str`), `Text` (quoted), `Span`, `Range`, `Entry`, `Value`, `State`, or a tuple of these.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
NOT_WORDS = frozenset({"true", "false"})


def storable(number: float) -> bool:
    """True for integers of 64 bits and finite floats: the numbers a plan may hold."""
    return -(1 << 63) <= number < 1 << 63 if isinstance(number, int) else math.isfinite(number)


class Value(str):
    """Name of an SSA value, printed `%name`."""

    __slots__ = ()


class State(str):
    """Name of a declared state, printed `@name`; `@text` is always there."""

    __slots__ = ()


class Text(str):
    """A quoted string: a path or a formula."""

    __slots__ = ()


TEXT_STATE = State("text")


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open span of layers, printed `start:stop`."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Range:
    """Closed range of numbers, printed `low..high`."""

    low: float
    high: float

    def __contains__(self, number: float) -> bool:
        """True when low <= number <= high."""
        return self.low <= number <= self.high


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of an open table with its parameters, printed `name` or `name(key=value)`."""

    name: str
    arguments: tuple[tuple[str, Atom], ...] = ()

    def get(self, key: str, default: Atom | None = None) -> Atom | None:
        """The argument called `key`, or `default`."""
        return dict(self.arguments).get(key, default)

    def integer(self, key: str, default: int) -> int:
        """The integer argument called `key`, or `default` when absent or of another kind."""
        argument = self.get(key, default)
        return argument if isinstance(argument, int) else default

    def words(self, key: str) -> tuple[str, ...]:
        """The words in the list called `key`; none when it is absent."""
        return tuple(map(str, self.items(key)))

    def items(self, key: str) -> tuple[Any, ...]:
        """The items of the list called `key`; none when it is absent."""
        listed = self.get(key, ())
        return listed if isinstance(listed, tuple) else ()


Atom: TypeAlias = int | float | bool | str | Span | Range | Entry | tuple["Atom", ...]


def print_atom(atom: Atom) -> str:
    """Plan text of one atom; `parse(print_atom(a)) == a`."""
    match atom:
        case bool():
            return "true" if atom else "false"
        case Value():
            return f"%{atom}"
        case State():
            return f"@{atom}"
        case Text():
            escaped = atom.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case str() | int():
            return str(atom)
        case float():
            return _print_float(atom)
        case Span(start, stop):
            return f"{start}:{stop}"
        case Range(low, high):
            return f"{print_atom(low)}..{print_atom(high)}"
        case Entry(name, ()):
            return name
        case Entry(name, arguments):
            inner = ", ".join(f"{key}={print_atom(value)}" for key, value in arguments)
            return f"{name}({inner})"
        case tuple():
            return "[" + ", ".join(print_atom(item) for item in atom) + "]"


def _print_float(number: float) -> str:
    """Shortest text that reads back as the same float, always with a point or an exponent."""
    text = repr(float(number))
    return text if any(mark in text for mark in ".en") else f"{text}.0"
