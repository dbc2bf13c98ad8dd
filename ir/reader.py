"""A cursor over tokens that reads atoms, and builds dataclasses from what it read."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, TypeVar

from specplan.ir.coerce import CoercionError, coerce, field_types
from specplan.ir.errors import UsageError
from specplan.ir.lexer import Token, tokenize
from specplan.ir.values import Atom, Entry, Range, Span, State, Text, Value

T = TypeVar("T")
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


class Reader:
    """Reads tokens one after the other; every refusal names line and column."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.index = 0

    @property
    def next(self) -> Token:
        """The token about to be read."""
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        """A later token; the last one when there are not so many."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def take(self, kind: str, text: str | None = None) -> Token:
        """Read a token of that kind (and text), or refuse."""
        token = self.next
        if token.kind != kind or (text is not None and token.text != text):
            raise self.error(f"expected {text or kind}, found {token.text.strip() or token.kind!r}")
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

    def error(self, what: str, remedy: str = "") -> UsageError:
        """A refusal at the next token."""
        return UsageError(what, where=f"plan text, {self.next.where}", remedy=remedy)

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
        raise self.error(f"expected a value, found {token.text.strip() or token.kind!r}")

    def _number(self, token: Token) -> Atom:
        number = _number(token.text)
        if self.at("mark", "..") and self.peek().kind in ("integer", "float"):
            self.index += 1
            high = _number(self.tokens[self.index].text)
            self.index += 1
            return Range(number, high)
        if isinstance(number, int) and self.at("mark", ":"):
            self.index += 1
            return Span(number, int(self.take("integer").text))
        return number

    def _list(self) -> tuple[Atom, ...]:
        self.take("mark", "[")
        items: list[Atom] = []
        while not self.accept("mark", "]"):
            items.append(self.atom())
            if not self.at("mark", "]"):
                self.take("mark", ",")
        return tuple(items)

    def _entry(self, name: str) -> Entry:
        self.take("mark", "(")
        arguments: list[tuple[str, Atom]] = []
        while not self.accept("mark", ")"):
            key = self.take("word").text
            self.take("mark", "=")
            arguments.append((key, self.atom()))
            if not self.at("mark", ")"):
                self.take("mark", ",")
        return Entry(name, tuple(arguments))

    def keywords(self) -> dict[str, tuple[Atom, Token]]:
        """Read `key=atom` pairs up to the end of the line or a brace."""
        found: dict[str, tuple[Atom, Token]] = {}
        while self.at_key():
            token = self.take("word")
            if token.text in found:
                raise UsageError(
                    f"'{token.text}' is given twice", where=f"plan text, {token.where}"
                )
            self.take("mark", "=")
            found[token.text] = (self.atom(), token)
        return found

    def build(
        self, cls: type[T], given: dict[str, tuple[Atom, Token]], what: str, **ready: Any
    ) -> T:
        """An instance of a dataclass from atoms, each checked against its field's type."""
        types = field_types(typing.cast(type, cls))
        values = dict(ready)
        for key, (atom, token) in given.items():
            if key not in types or key in ready:
                allowed = ", ".join(k for k in types if k not in ready)
                raise UsageError(
                    f"{what} has no attribute '{key}'",
                    where=f"plan text, {token.where}",
                    remedy=f"It takes: {allowed}.",
                )
            try:
                values[key] = coerce(types[key], atom)
            except CoercionError as error:
                raise UsageError(
                    f"{what} {key}: {error}", where=f"plan text, {token.where}"
                ) from error
        for field in dataclasses.fields(typing.cast(Any, cls)):
            required = (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            )
            if required and field.name not in values:
                raise self.error(f"{what} lacks '{field.name}'")
        return cls(**values)


def _number(text: str) -> int | float:
    return float(text) if any(mark in text for mark in ".eE") else int(text)


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
