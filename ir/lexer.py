"""Plan text to tokens, each with its line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from specplan.ir.errors import UsageError
from specplan.ir.values import NAME, WORD

_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<skip>[ \t\r]+|\#[^\n]*)",
            r"(?P<newline>\n)",
            rf"(?P<value>%{NAME.pattern})",
            rf"(?P<state>@{NAME.pattern})",
            r'(?P<text>"(?:[^"\\\n]|\\.)*")',
            r"(?P<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))",
            r"(?P<integer>-?\d+)",
            rf"(?P<word>{WORD.pattern})",
            r"(?P<mark>\.\.|[=()\[\]{},:])",
        )
    ),
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `kind` is a group of the pattern, or `end`."""

    kind: str
    text: str
    line: int
    column: int

    @property
    def where(self) -> str:
        """Place in the text, for messages."""
        return f"line {self.line}, column {self.column}"


def tokenize(text: str) -> list[Token]:
    """All tokens, empty lines dropped, ended by one of kind `end`.

    Raises:
        UsageError: at the first character no token starts with.
    """
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    line, line_start, position, fresh = 1, 0, 0, True
    while position < len(text):
        found = _TOKEN.match(text, position)
        column = position - line_start + 1
        if found is None:
            raise UsageError(
                f"unexpected character {text[position]!r}",
                where=f"line {line}, column {column}",
                remedy='Names start with % or @, strings stand in "quotes".',
            )
        kind = str(found.lastgroup)
        if kind == "newline":
            if not fresh:
                yield Token(kind, "\n", line, column)
            line, line_start, fresh = line + 1, found.end(), True
        elif kind != "skip":
            fresh = False
            yield Token(kind, found.group(), line, column)
        position = found.end()
    if not fresh:
        yield Token("newline", "\n", line, position - line_start + 1)
    yield Token("end", "", line, 1)
