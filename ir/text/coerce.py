"""Check an atom against the declared type of a field; the dataclasses are the only grammar."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, Literal

from specplan.ir.values import (
    NOT_WORDS,
    WORD,
    Atom,
    Entry,
    Range,
    Span,
    State,
    Text,
    Value,
    print_atom,
)


class CoercionError(Exception):
    """The atom does not fit; the message says what would."""


_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a word",
    Value: "a value (%name)",
    State: "a state (@name)",
    Text: "a quoted string",
    Entry: "a name with parameters",
    Span: "a span (0:8)",
    Range: "a range (1..4)",
}


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """Resolved types of a dataclass's fields, in order of declaration."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def coerce(hint: Any, atom: Atom) -> Any:
    """The atom as the field wants it.

    Raises:
        CoercionError: when no reading of the atom fits the type.
    """
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _coerce_union(typing.get_args(hint), atom)
    if origin is Literal:
        if type(atom) is str and atom in typing.get_args(hint):
            return atom
    elif origin is tuple:
        if isinstance(atom, tuple):
            return _coerce_tuple(hint, atom)
    elif hint is float and type(atom) in (int, float):
        return float(typing.cast(float, atom))
    elif hint is Entry and type(atom) is str:
        return Entry(atom)
    elif hint is str and type(atom) is str:
        if WORD.fullmatch(atom) and atom not in NOT_WORDS:
            return atom
    elif type(atom) is hint or _is_kind(hint, atom):
        return atom
    raise CoercionError(f"{_shown(atom)} is not {describe(hint)}")


def _is_kind(hint: Any, atom: Atom) -> bool:
    """Whether JSON holds an op or statement where one of its kind is wanted."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(atom, hint)


def _coerce_tuple(hint: Any, atom: tuple[Atom, ...]) -> tuple[Any, ...]:
    items = typing.get_args(hint)
    if items[-1] is Ellipsis:
        return tuple(coerce(items[0], part) for part in atom)
    if len(items) != len(atom):
        raise CoercionError(f"{_shown(atom)} does not have {len(items)} items")
    return tuple(coerce(item, part) for item, part in zip(items, atom, strict=True))


def _coerce_union(options: tuple[Any, ...], atom: Atom) -> Any:
    for option in options:
        if option is type(None):
            continue
        try:
            return coerce(option, atom)
        except CoercionError:
            continue
    wanted = " or ".join(describe(option) for option in options if option is not type(None))
    raise CoercionError(f"{_shown(atom)} is not {wanted}")


def describe(hint: Any) -> str:
    """What a field takes, in words."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(describe(o) for o in typing.get_args(hint) if o is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    if origin is tuple:
        return f"a list of which each is {describe(typing.get_args(hint)[0])}"
    return _NAMES.get(hint) or f"of the kind {getattr(hint, '__name__', hint)}"


def _shown(item: object) -> str:
    """What was given, in words: JSON may hold whole ops and statements in place of atoms."""
    if isinstance(item, tuple):
        return "[" + ", ".join(_shown(part) for part in item) + "]"
    if dataclasses.is_dataclass(item) and not isinstance(item, Span | Range | Entry):
        return f"a {type(item).__name__}"
    return print_atom(typing.cast(Atom, item))
