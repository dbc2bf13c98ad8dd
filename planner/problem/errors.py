"""Messages about problem files: one sentence that names the file, the line, the key, the remedy."""

from __future__ import annotations

import contextlib
import difflib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from specplan.ir.errors import InfeasibleError, SpecplanError, UsageError
from specplan.planner.problem.limits import QuantityError
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.short_form import KEY_OF

Location = tuple[str | int, ...]
SETTING = "--set"
"""The flag of any key; relative paths that it sets start where those of the file do."""
ValueT = TypeVar("ValueT")
Errors = Iterator[SpecplanError]
"""What a check yields: an error for each thing that is wrong."""


@dataclass(frozen=True)
class Origin:
    """Where a problem was written, so that messages can point at it.

    Attributes:
        file: the file's name; empty for a problem made in Python.
        lines: 1-based line of each dotted key.
        flags: the flag of the command line that set a dotted key.
    """

    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """`file:line: key`, or `--flag: key`; a key without a place takes that of its parent."""
        flag, line = _of_nearest(self.flags, key), _of_nearest(self.lines, key)
        place = flag or (self.file if line is None else f"{self.file}:{line}")
        return ": ".join(part for part in (place, key) if part)

    def base(self, key: str) -> str:
        """Where relative paths at a key start, in words."""
        by_flag = _of_nearest(self.flags, key) not in (None, SETTING)
        return "the current folder" if by_flag or not self.file else "the problem file"

    def usage(self, key: str, what: str, remedy: str) -> UsageError:
        """A bad value at `key`."""
        return UsageError(what, where=self.where(key), remedy=remedy)

    @contextlib.contextmanager
    def key(self, key: str) -> Iterator[None]:
        """Tell errors of ours, raised inside, with the key that led to them."""
        try:
            yield
        except SpecplanError as error:
            place = " -> ".join(part for part in (self.where(key), error.where) if part)
            remedy = error.remedy or "Mend that file, or name another one."
            raise type(error)(error.what, where=place, remedy=remedy) from error

    def infeasible(self, key: str, what: str, remedy: str) -> InfeasibleError:
        """A limit at `key` that nothing can satisfy."""
        return InfeasibleError(what, where=self.where(key), remedy=remedy)


def _of_nearest(values: Mapping[str, ValueT], key: str) -> ValueT | None:
    """The value of a dotted key, or of the nearest key above it that has one."""
    parts = key.split(".")
    parents = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((values[parent] for parent in parents if parent in values), None)


def collected(errors: Iterable[SpecplanError]) -> Errors:
    """What a check yields, and the error that ends it where it raises one."""
    try:
        yield from errors
    except SpecplanError as error:
        yield error


def attempt(check: Callable[..., object], *arguments: object) -> Errors:
    """The error that a call raises, if any."""
    try:
        check(*arguments)
    except SpecplanError as error:
        yield error


def raise_together(errors: Iterable[SpecplanError], origin: Origin) -> None:
    """Raise one error for all of these, and the error itself where there is one; no key twice."""
    by_place: dict[str, SpecplanError] = {}
    for error in errors:
        by_place.setdefault(error.where, error)
    if not by_place:
        return
    single = sorted(by_place.values(), key=lambda error: _line(error, origin))
    if len(single) == 1:
        raise single[0]
    kind = next((UsageError for error in single if isinstance(error, UsageError)), type(single[0]))
    text = "".join(f"\n  {error}" for error in single)
    raise kind(f"{len(single)} errors{text}", where=origin.file, errors=single)


def _line(error: SpecplanError, origin: Origin) -> int:
    """The line of an error in the problem's file; those elsewhere come last."""
    rest = error.where.removeprefix(f"{origin.file}:") if origin.file else ""
    line = rest.partition(":")[0]
    return int(line) if line.isdecimal() else sys.maxsize


def flag_of(word: str) -> str:
    """The flag of a word of the short form: `--draft` for `drafts`."""
    return f"--{word.replace('_', '-').removesuffix('s')}"


def nearest(word: str, known: Iterable[str]) -> str:
    """`Did you mean ...?` with the nearest known word, or the list of what is known."""
    words = sorted(known)
    match = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if match:
        return f'Did you mean "{match[0]}"?'
    if not words:
        return "There is none to choose from; leave it out."
    return f"Known: {', '.join(words)}."


def dotted(location: Location) -> str:
    """The dotted key of a place, `workload.batch_sizes.0`."""
    return ".".join(str(part) for part in location)


def form_errors(error: ValidationError, origin: Origin) -> dict[str, SpecplanError]:
    """All of pydantic's complaints as errors of ours, by dotted key.

    A required key is not reported missing where a misspelt key was meant to be it, nor is a list
    reported whose entries are.
    """
    errors: dict[str, SpecplanError] = {}
    meant: set[str] = set()
    missing: set[str] = set()
    for detail in error.errors(include_url=False):
        location = tuple(detail["loc"])
        key = dotted(location)
        what, remedy = _message(detail, location)
        if detail["type"] == "missing":
            missing.add(key)
        if detail["type"] == "extra_forbidden":
            intended = _intended(location)
            meant |= {dotted((*location[:-1], intended)), intended} if intended else set()
        errors.setdefault(key, origin.usage(key, what, remedy))
    of_entries = {key for key in errors if any(other.startswith(f"{key}.") for other in errors)}
    return {key: one for key, one in errors.items() if key not in of_entries | (missing & meant)}


def _message(detail: Mapping[str, Any], location: Location) -> tuple[str, str]:
    """What is wrong and how to mend it, for one complaint of pydantic."""
    kind = detail["type"]
    value = detail.get("input")
    context: Mapping[str, Any] = detail.get("ctx") or {}
    info = _field(location)
    if kind == "extra_forbidden":
        intended = _intended(location)
        known = sorted(owner.model_fields) if (owner := _model(location[:-1])) else []
        remedy = f'Did you mean "{intended}"?' if intended else f"Known: {', '.join(known)}."
        return "unknown key", remedy
    if kind == "missing":
        return "this key is required", _give(info)
    if kind == "literal_error":
        choices = _literals(info)
        return f"{_shown(value)} is not a choice", nearest(str(value), choices)
    if isinstance(context.get("error"), QuantityError):
        return context["error"].what, context["error"].remedy
    return f"{_requirement(kind, context, detail['msg'])}, got {_shown(value)}", _give(info)


def _intended(location: Location) -> str:
    """The key that an unknown one stands for: one beside it, or a dotted one elsewhere; or ""."""
    word, owner = str(location[-1]), _model(location[:-1])
    beside = difflib.get_close_matches(word, [] if owner is None else owner.model_fields, n=1)
    if beside:
        return beside[0]
    elsewhere = {key.rpartition(".")[2]: key for key in _keys(Problem)} | KEY_OF
    close = difflib.get_close_matches(word, elsewhere, n=1, cutoff=0.8)
    return elsewhere[close[0]] if close else ""


def _keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The dotted keys of a model's fields; entries of lists are left out."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _keys(info.annotation, f"{above}{name}.")
        else:
            yield f"{above}{name}"


_REQUIREMENTS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping of keys to values",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
}


def _requirement(kind: str, context: Mapping[str, Any], fallback: str) -> str:
    template = _REQUIREMENTS.get(kind)
    if template is None:
        return fallback[:1].lower() + fallback[1:]
    try:
        return template.format(**context)
    except KeyError:
        return fallback[:1].lower() + fallback[1:]


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else text[:57] + "..."


def _give(info: FieldInfo | None) -> str:
    if info is None or not info.description:
        return "See the JSON Schema of problem files for what belongs here."
    return f"What belongs here: {info.description}"


def _literals(info: FieldInfo | None) -> list[str]:
    if info is None:
        return []
    return [str(value) for value in typing.get_args(info.annotation)]


def _step(annotation: Any, part: str | int) -> Any:
    """The annotation one step down: into a union's models, a tuple's or mapping's values."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        steps = (_step(choice, part) for choice in typing.get_args(annotation))
        return next((choice for choice in steps if choice is not None), None)
    if origin in (tuple, dict):
        return typing.get_args(annotation)[0 if origin is tuple else 1]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        info = annotation.model_fields.get(str(part))
        return None if info is None else info.annotation
    return None


def _model(location: Location) -> type[BaseModel] | None:
    """The model class that stands at a place of the problem."""
    annotation: Any = Problem
    for part in location:
        annotation = _step(annotation, part)
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


def _field(location: Location) -> FieldInfo | None:
    """The field that describes a place: its own, or its nearest parent's."""
    for end in range(len(location), 0, -1):
        owner = _model(location[: end - 1])
        if owner is not None and str(location[end - 1]) in owner.model_fields:
            return owner.model_fields[str(location[end - 1])]
    return None
