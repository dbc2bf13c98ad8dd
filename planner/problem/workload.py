"""Prompts and request traces: the JSON Lines files of a workload, and checks of its lengths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import read_json, read_text
from specplan.planner.problem.errors import Errors, Origin, nearest
from specplan.planner.problem.schema import Problem

MINIMUM_PROMPTS = 4
"""Fewer prompts than this give acceptance rates without a usable interval."""


def check_workload(problem: Problem, origin: Origin) -> Errors:
    """Lengths that are missing or given twice, repeated numbers, sampling without effect."""
    workload = problem.workload
    if workload.prompt_lengths is not None and workload.prompt_tokens is not None:
        yield origin.usage(
            "workload.prompt_lengths",
            "prompt_tokens and prompt_lengths are both given",
            "Keep one of the two.",
        )
    prompt = "prompt_tokens" if workload.prompt_lengths is None else "prompt_lengths"
    lengths = {prompt: workload.lengths or None, "output_tokens": workload.output_tokens}
    for name, value in lengths.items():
        if workload.trace is not None and value is not None:
            yield origin.usage(
                f"workload.{name}",
                f"{name} and trace are both given",
                "Keep the trace, or prompt_tokens and output_tokens.",
            )
            break  # the remedy is for both
        if workload.trace is None and value is None:
            yield origin.usage(
                f"workload.{name}",
                "the lengths of the requests are not known",
                f"Give {name} in tokens, or a trace file instead of both lengths.",
            )
    for key, what, numbers in (
        ("batch_sizes", "batch size", workload.batch_sizes),
        ("prompt_lengths", "prompt length", workload.prompt_lengths or ()),
    ):
        for index, number in enumerate(numbers):
            if number in numbers[:index]:
                yield origin.usage(
                    f"workload.{key}.{index}",
                    f"the {what} {number} stands twice",
                    "Keep one of the two.",
                )
    lengths_known = list(workload.lengths)
    if workload.trace is not None:
        with origin.key("workload.trace"):
            lengths_known = [one.prompt_tokens for one in read_trace(workload.trace)]
    if workload.json_schema is not None and workload.grammar is not None:
        both = "grammar and json_schema are both given"
        yield origin.usage("workload.grammar", both, "Keep one of the two.")
    with origin.key("workload.grammar" if workload.grammar else "workload.json_schema"):
        _ = workload.followed  # readable
        if workload.json_schema is not None:
            read_json(workload.json_schema, "JSON schema")
    yield from _check_cached_prefix(workload.cached_prefix, lengths_known, origin)


def _check_cached_prefix(cached: int, prompts: list[int], origin: Origin) -> Errors:
    """A cached prefix that leaves nothing of some prompt to compute."""
    if cached and prompts and cached >= min(prompts):
        yield origin.usage(
            "workload.cached_prefix",
            f"{cached} cached tokens leave nothing to compute of a prompt of {min(prompts)}",
            f"Give at most {min(prompts) - 1}: the last token of a prompt is always computed.",
        )


def check_request_rate(problem: Problem, origin: Origin) -> Errors:
    """A request rate without the objective goodput, or the objective without a rate."""
    given = problem.workload.request_rate is not None
    if problem.objective == "goodput" and not given:
        yield origin.usage(
            "workload.request_rate",
            "goodput is asked for, and how many requests arrive is not known",
            "Give request_rate in requests per second, or another objective.",
        )
    if problem.objective != "goodput" and given:
        yield origin.usage(
            "workload.request_rate",
            f'request_rate has no effect on the objective "{problem.objective}"',
            'Leave request_rate out, or write "objective: goodput".',
        )


def check_prompts(problem: Problem, origin: Origin) -> Errors:
    """A file of prompts that cannot be read, or has too few prompts of the task."""
    workload = problem.workload
    if workload.prompts is None:
        return
    with origin.key("workload.prompts"):
        prompts = read_prompts(workload.prompts)
    if workload.task:
        tasks = {prompt.task for prompt in prompts}
        if workload.task not in tasks:
            yield origin.usage(
                "workload.task",
                f'no prompt of {workload.prompts} has the task "{workload.task}"',
                nearest(workload.task, tasks - {""}),
            )
            return
        prompts = [prompt for prompt in prompts if prompt.task == workload.task]
    if len(prompts) < MINIMUM_PROMPTS:
        of_task = f' of the task "{workload.task}"' if workload.task else ""
        yield origin.usage(
            "workload.prompts",
            f"the file has {len(prompts)} prompts{of_task}, at least {MINIMUM_PROMPTS} are needed",
            "Add prompts; 40 or more give a useful interval of the acceptance.",
        )


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: its name; unique in the file.
        text: what the model continues.
        task: what kind of text it is.
        split: which part of the data it belongs to.
        followed: kind and text of what its output must follow, instead of the workload's.
        images: files of its images, in the order in which its text holds image tokens.
    """

    id: str
    text: str
    task: str = ""
    split: str = ""
    followed: tuple[str, str] | None = None
    images: tuple[Path, ...] = ()

    @property
    def text_alone(self) -> str:
        """Its text, for what reads no images.

        Raises:
            MissingCapabilityError: it has some.
        """
        if self.images:
            raise MissingCapabilityError(
                f"prompt {self.id} has an image, and texts alone are read here",
                where="prompts",
                remedy="Give prompts of text; optimize, bench, tune and run take images.",
            )
        return self.text


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
        prompt = _prompt(value, number, where, path.parent)
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


def _prompt(value: dict[str, Any], number: int, where: str, folder: Path) -> Prompt:
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
    images = value.get("image", [])
    images = [images] if isinstance(images, str) else images
    if not isinstance(images, list) or not all(isinstance(one, str) for one in images):
        raise UsageError(
            f'"image" must be the name of a file, or a list of names, got {images!r}',
            where=where,
            remedy="Name files relative to the file of prompts.",
        )
    files = tuple(folder / one for one in images)
    return Prompt(text=text, followed=_followed(value, where), images=files, **words)


def _followed(value: dict[str, Any], where: str) -> tuple[str, str] | None:
    """A prompt's own schema, as an object, or its own grammar, as a text."""
    schema, grammar = value.get("json_schema"), value.get("grammar")
    if not isinstance(schema, dict | None) or not isinstance(grammar, str | None):
        remedy = "Write the schema itself, not the name of its file."
        what = '"json_schema" must be an object, and "grammar" a text'
        raise UsageError(what, where=where, remedy=remedy)
    if schema is None:
        return None if grammar is None else ("lark", grammar)
    return "json_schema", json.dumps(schema)


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
    remedy = "Check the path; in a problem file it is relative to that file."
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
