"""Whether a continued prompt is Python: a command that scores outputs.

    limits:
      quality: {measure: command, command: [python3, benchmarks/parsing.py], at_most: 0.05}

Its input is one JSON object with `prompt` and `output`; its exit code is 0 if the two parse up to
a statement that the output completes, else 1. Cut off is what may be unfinished: the last logical
line, a header without a body, a `try` without a handler.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
from collections.abc import Sequence

Statement = list[tokenize.TokenInfo]


def statements(text: str) -> list[Statement]:
    """The logical lines of a text that are whole, as tokens.

    Raises:
        IndentationError: a line fits no block.
    """
    blank = tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT
    whole: list[Statement] = []
    line: Statement = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in blank:
                line.append(token)
            if token.type == tokenize.NEWLINE:
                if token.string:  # the tokenizer adds an empty one at the end
                    whole.append(line)
                line = []
    except tokenize.TokenError:
        pass  # an open bracket or string: the last statement is not whole
    return whole


def open_try(lines: Sequence[Statement]) -> int | None:
    """The place of the first `try` whose block reaches to the end."""
    columns = [line[0].start[1] for line in lines]
    for place, line in enumerate(lines):
        if line[0].string == "try" and min(columns[place + 1 :], default=99) > columns[place]:
            return place
    return None


def cut_at_last_statement(text: str) -> str:
    """The text up to the end of its last statement that is not cut off.

    Raises:
        IndentationError: a line fits no block.
    """
    lines = statements(text)
    while lines:
        place = open_try(lines)
        if place is not None:
            del lines[place:]
        elif lines[-1][-2:][0].string == ":" or lines[-1][0].string == "@":
            lines.pop()
        else:
            break
    end = lines[-1][-1].end[0] if lines else 0
    return "".join(text.splitlines(keepends=True)[:end])


def parses(prompt: str, output: str, *, ended: bool = False) -> bool:
    """Whether prompt and output are Python up to a statement that the output completes.

    Args:
        prompt: what was continued.
        output: its continuation.
        ended: the output stops there by itself, so that its last line is whole.
    """
    try:
        cut = cut_at_last_statement(prompt + output + "\n" * ended)
        ast.parse(cut)
    except (SyntaxError, ValueError):
        return False
    return len(cut.rstrip()) > len(prompt)


if __name__ == "__main__":
    record = json.load(sys.stdin)
    sys.exit(not parses(record["prompt"], record["output"]))
