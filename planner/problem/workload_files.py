"""The two JSON Lines files that a workload may name: prompts and a request trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: its name; unique in the file.
        text: what the model continues.
        task: what kind of text it is.
        split: which part of the data it belongs to.
    """

    id: str
    text: str
    task: str = ""
    split: str = ""


@dataclass(frozen=True)
class RequestLengths:
    """Lengths of one request, in tokens."""

    prompt_tokens: int
    output_tokens: int


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a file, in order.

    Raises:
        UsageError: when the file is missing or empty, or a line is broken; names the line.
    """
    prompts: list[Prompt] = []
    lines: dict[str, int] = {}
    for number, value in _json_lines(path, "prompts"):
        where = f"{path}:{number}"
        prompt = _prompt(value, number, where)
        if prompt.id in lines:
            raise UsageError(
                f'the id "{prompt.id}" stands already in line {lines[prompt.id]}',
                where=where,
                remedy="Give every prompt its own id, or leave the ids out.",
            )
        lines[prompt.id] = number
        prompts.append(prompt)
    return prompts


def read_trace(path: Path) -> list[RequestLengths]:
    """All requests of a trace, in order.

    Raises:
        UsageError: when the file is missing or empty, or a line is broken; names the line.
    """
    return [
        RequestLengths(
            _length(value, "prompt_tokens", f"{path}:{number}"),
            _length(value, "output_tokens", f"{path}:{number}"),
        )
        for number, value in _json_lines(path, "trace")
    ]


def _prompt(value: dict[str, Any], number: int, where: str) -> Prompt:
    text = value.get("text")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            'the line has no "text", or an empty one',
            where=where,
            remedy='Write {"id": "...", "text": "...", "task": "..."} on every line.',
        )
    words = {"id": f"line-{number}", "task": "", "split": ""}
    for key in words:
        word = value.get(key, words[key])
        if not isinstance(word, str):
            raise UsageError(
                f'"{key}" must be a text, got {word!r}', where=where, remedy="Quote the value."
            )
        words[key] = word
    return Prompt(text=text, **words)


def _length(value: dict[str, Any], key: str, where: str) -> int:
    length = value.get(key)
    if type(length) is not int or length < 1:
        raise UsageError(
            f'"{key}" must be a whole number of tokens, at least 1, got {length!r}',
            where=where,
            remedy='Write {"prompt_tokens": 160, "output_tokens": 128} on every line.',
        )
    return length


def _json_lines(path: Path, what: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file with their 1-based line numbers; blank lines are skipped."""
    remedy = "Check the path; it is relative to the problem file."
    text = read_text(path, f"{what} file", remedy)
    empty = True
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        empty = False
        yield number, _object(line, f"{path}:{number}")
    if empty:
        raise UsageError(
            f"the {what} file is empty", where=str(path), remedy="Put one JSON object per line."
        )


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"the line is not JSON ({error})",
            where=where,
            remedy="The file must be JSON Lines: one complete object per line.",
        ) from error
    if not isinstance(value, dict):
        raise UsageError(
            f"the line holds a {type(value).__name__}, not an object",
            where=where,
            remedy="The file must be JSON Lines: one complete object per line.",
        )
    return value
