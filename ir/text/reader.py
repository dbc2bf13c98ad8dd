"""A cursor over tokens that reads atoms, and builds dataclasses from what it read."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, TypeVar

from specplan.ir.errors import UsageError
from specplan.ir.text.coerce import CoercionError, coerce, field_types
from specplan.ir.text.lexer import Token, tokenize
from specplan.ir.values import (
    NOT_WORDS,
    Atom,
    Entry,
    Range,
    Span,
    State,
    Text,
    Value,
    storable,
)

T = TypeVar("T")
_LONGEST_NUMBER = 64
_DEEPEST = 32
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}
_KINDS = {
    "word": "a word",
    "value": "a value (%name)",
    "state": "a state (@name)",
    "integer": "an integer",
    "newline": "the end of the line",
    "end": "the end of the text",
}


class Reader:
    """Reads tokens one after the other; every refusal names line and column."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        """The token about to be read."""
        return self.tokens[self.index]

    def peek(self) -> Token:
        """The token behind the next; the last one where there is none."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def take(self, kind: str, text: str | None = None) -> Token:
        """Read a token of that kind (and text), or refuse."""
        token = self.next
        if token.kind != kind or (text is not None and token.text != text):
            wanted = f"'{text}'" if text is not None else _KINDS[kind]
            raise self.error(f"expected {wanted}, found {_shown(token)}")
        self.index += 1
        return token

    def at(self, kind: str, text: str | None = None) -> bool:
        """True when the next token is of that kind (and text)."""
        return self.next.kind == kind and (text is None or self.next.text == text)

    def accept(self, kind: str, text: str | None = None) -> bool:
        """Read the token if it is the next one."""
        if not self.at(kind, text):
            return False
        self.index += 1
        return True

    def error(self, what: str, remedy: str = "", *, at: Token | None = None) -> UsageError:
        """A refusal at the next token, or at the one given."""
        place = self.next if at is None else at
        return UsageError(what, where=f"plan text, {place.where}", remedy=remedy)

    def name(self, of: str) -> str:
        """Read the name of something."""
        if self.next.text in NOT_WORDS:
            raise self.error(f"{of} cannot be called '{self.next.text}'")
        return self.take("word").text

    def at_key(self) -> bool:
        """True when `word =` comes next."""
        following = self.peek()
        return self.next.kind == "word" and following.kind == "mark" and following.text == "="

    def atom(self) -> Atom:
        """Read one atom."""
        token = self.next
        if token.kind == "mark" and token.text == "[":
            return self._list()
        self.index += 1
        match token.kind:
            case "value":
                return Value(token.text[1:])
            case "state":
                return State(token.text[1:])
            case "text":
                return _unquote(token.text)
            case "integer" | "float":
                return self._number(token)
            case "word" if self.at("mark", "("):
                return self._entry(token.text)
            case "word":
                return {"true": True, "false": False}.get(token.text, token.text)
        self.index -= 1
        raise self.error(f"expected a value, found {_shown(token)}")

    def _number(self, token: Token) -> Atom:
        number = self._value(token)
        if self.at("mark", "..") and self.peek().kind in ("integer", "float"):
            self.index += 2
            return Range(number, self._value(self.tokens[self.index - 1]))
        if isinstance(number, int) and self.at("mark", ":"):
            self.index += 1
            return Span(number, int(self._value(self.take("integer"))))
        return number

    def _value(self, token: Token) -> int | float:
        if len(token.text) <= _LONGEST_NUMBER:
            number = int(token.text) if token.kind == "integer" else float(token.text)
            if storable(number):
                return number
        raise self.error("the number is too large", at=token)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"lists are nested deeper than {_DEEPEST}")

    def _list(self) -> tuple[Atom, ...]:
        self._deeper()
        self.take("mark", "[")
        items: list[Atom] = []
        while not self.accept("mark", "]"):
            items.append(self.atom())
            if not self.at("mark", "]"):
                self.take("mark", ",")
        self.depth -= 1
        return tuple(items)

    def _entry(self, name: str) -> Entry | str:
        self._deeper()
        self.take("mark", "(")
        arguments: list[tuple[str, Atom]] = []
        while not self.accept("mark", ")"):
            token = self.take("word")
            if any(token.text == key for key, _ in arguments):
                raise self.error(f"'{token.text}' is given twice", at=token)
            self.take("mark", "=")
            arguments.append((token.text, self.atom()))
            if not self.at("mark", ")"):
                self.take("mark", ",")
        self.depth -= 1
        return Entry(name, tuple(arguments)) if arguments else name

    def keywords(self) -> dict[str, tuple[Atom, Token]]:
        """Read `key=atom` pairs up to the end of the line or a brace."""
        read: dict[str, tuple[Atom, Token]] = {}
        while self.at_key():
            token = self.take("word")
            if token.text in read:
                raise self.error(f"'{token.text}' is given twice", at=token)
            self.take("mark", "=")
            read[token.text] = (self.atom(), token)
        return read

    def build(
        self,
        cls: type[T],
        given: dict[str, tuple[Atom, Token]],
        what: str,
        place: Token | None = None,
        **ready: Any,
    ) -> T:
        """An instance of a dataclass from atoms, each checked against its field's type.

        Args:
            cls: the dataclass.
            given: attributes as read, with their places.
            what: the name of the op or statement, for messages.
            place: where it stands, for attributes that are missing.
            ready: fields that are known already.
        """
        types = field_types(typing.cast(type, cls))
        values = dict(ready)
        renamed = dict(getattr(cls, "renamed", ()))
        for word, (atom, token) in given.items():
            key = renamed.get(word, word)
            if key in values and key != word:
                raise self.error(f"{word}= is read as {key}=, which is given, too", at=token)
            if key not in types or key in ready:
                instead = dict(getattr(cls, "gone", ())).get(key)
                if instead is not None:
                    raise self.error(f"{what} {key}= is gone: {instead}", at=token)
                allowed = ", ".join(k for k in types if k not in ready) or "none"
                raise self.error(
                    f"{what} has no attribute '{key}'", f"It takes: {allowed}.", at=token
                )
            try:
                values[key] = coerce(types[key], atom)
            except CoercionError as error:
                remedy = dict(getattr(cls, "narrowed", ())).get(key, "")
                raise self.error(f"{what} {key}: {error}", remedy, at=token) from error
        for name, other in getattr(cls, "same_as", ()):
            if other in values:
                values.setdefault(name, values[other])
        for name in _required(typing.cast(type, cls)):
            if name not in values:
                raise self.error(f"{what} lacks '{name}='", at=place)
        return cls(**values)


@functools.cache
def _required(cls: type) -> tuple[str, ...]:
    """Fields of a dataclass that have no default."""
    missing = dataclasses.MISSING
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.default is missing and field.default_factory is missing
    )


def _shown(token: Token) -> str:
    return _KINDS[token.kind] if token.kind in ("newline", "end") else f"'{token.text}'"


def _unquote(text: str) -> Text:
    inner, out, index = text[1:-1], [], 0
    while index < len(inner):
        if inner[index] == "\\":
            index += 1
            out.append(_ESCAPES.get(inner[index], inner[index]))
        else:
            out.append(inner[index])
        index += 1
    return Text("".join(out))
