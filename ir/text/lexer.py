"""Plan text to tokens, each with its line and column."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from specplan.ir.errors import UsageError
from specplan.ir.values import NAME, WORD

_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<skip>[ \t\r]+|\#[^\n]*)",
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


class Token(NamedTuple):
    """One token; `kind` is a group of the pattern, `newline` or `end`."""

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
    tokens: list[Token] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        words_of_line, rest = _tokens(line)
        if rest:
            raise UsageError(
                f"unexpected character {rest[0]!r}",
                where=f"line {number}, column {len(line) - len(rest) + 1}",
                remedy='Names start with % or @, strings stand in "quotes".',
            )
        if words_of_line:
            tokens += [Token(kind, words, number, column) for kind, words, column in words_of_line]
            tokens.append(Token("newline", "\n", number, len(line) + 1))
    tokens.append(Token("end", "", len(lines), 1))
    return tokens


@lru_cache(maxsize=4096)
def _tokens(line: str) -> tuple[tuple[tuple[str, str, int], ...], str]:
    """Kind, text and column of the tokens of a line, and what is left where none starts.

    Plans that a search writes share most of their lines.
    """
    words_of_line, position = [], 0
    while position < len(line):
        token = _TOKEN.match(line, position)
        if token is None:
            break
        kind = str(token.lastgroup)
        if kind != "skip":
            words_of_line.append((kind, token.group(), position + 1))
        position = token.end()
    return tuple(words_of_line), line[position:]
