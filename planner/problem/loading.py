"""Reading a problem: a YAML file or a Python dict to a checked `Problem`."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from specplan.cost_models.models.files.gguf_config import run_dtype
from specplan.cost_models.models.files.gguf_headers import read_gguf
from specplan.cost_models.models.model_shape import is_gguf
from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import read_text
from specplan.ir.text.yaml_text import read_yaml
from specplan.planner.problem.checks import check_problem, word_errors
from specplan.planner.problem.errors import SETTING, Origin, flag_of, form_errors, raise_together
from specplan.planner.problem.models import Models, TargetModel
from specplan.planner.problem.paths import device_is_path, resolve_paths
from specplan.planner.problem.schema import SCHEMA_VERSION, Problem
from specplan.planner.problem.setting_checks import known_backends
from specplan.planner.problem.short_form import KEY_OF, merged, replaces, with_settings

ModelT = TypeVar("ModelT", bound=TargetModel)


def load_problem(path: Path | str) -> Problem:
    """Read, resolve and check a problem file.

    Args:
        path: a YAML file; paths inside it are relative to its folder.

    Returns:
        The problem, every path absolute.

    Raises:
        UsageError: when the file or anything that it names is broken; names the dotted key.
        InfeasibleError: when a limit cannot be met by any plan.
    """
    path = Path(path)
    value, lines = read_yaml(read_text(path, "problem file"), str(path))
    return _build(value, path.resolve().parent, Origin(str(path), lines))


def problem_from_flags(
    path: Path | None, short: Mapping[str, Any], settings: Sequence[str] = ()
) -> Problem:
    """The problem that a command line describes: flags and settings, over a file if one is given.

    Args:
        path: a problem file that the flags change; None for a problem by flags alone.
        short: the values of flags by the words of `short_form.KEY_OF`; paths that a user wrote
            relative to the current folder are absolute here.
        settings: further `key=value`, as `--set` takes them; relative paths start at the folder of
            the file, or at the current folder without one.

    Raises:
        UsageError: when a flag, the file or anything that they name is broken.
        InfeasibleError: when a limit cannot be met by any plan.
    """
    flags = {KEY_OF[word]: flag_of(word) for word, value in short.items() if value is not None}
    for setting in settings:
        key = setting.partition("=")[0]
        again = next((one for one in flags if replaces(key, one) and flags[one] != SETTING), None)
        if again is not None:
            raise UsageError(
                f"{flags[again]} and {SETTING} {key} both set {again}",
                where=f"{SETTING} {setting}",
                remedy="Keep one of the two.",
            )
        flags[key] = SETTING
    document, lines = None, dict[str, int]()
    if path is None:
        _check_enough(flags)
    else:
        document, lines = read_yaml(read_text(path, "problem file"), str(path))
        _check_mapping(document, Origin(str(path)))
    value = with_settings(merged(document, short), settings)
    origin = Origin("" if path is None else str(path), lines, flags)
    return _build(value, Path() if path is None else path.resolve().parent, origin)


def _check_enough(keys: Collection[str]) -> None:
    """Refuse a problem by flags alone that lacks some, given the keys that flags set."""
    examples = {"target": "DIR", "batch": "1,16,64", "prompt": "1024", "output": "512"}
    lacking = [word for word in examples if KEY_OF[word] not in keys]
    if {"workload.trace", "workload.prompt_lengths"} & {*keys}:
        lacking = [word for word in lacking if word not in ("prompt", "output")]
    if lacking:
        flags = [f"{flag_of(word)} {examples[word]}" for word in lacking]
        raise UsageError(
            f"a problem without a file needs {', '.join(map(flag_of, lacking))} as well",
            remedy=f"Add {' '.join(flags)}",
        )


def problem_from_dict(value: Mapping[str, Any], base: Path | str = ".") -> Problem:
    """The same from a Python mapping; relative paths are taken from the folder `base`.

    Raises:
        UsageError: when a value, or anything that it names, is broken; names the dotted key.
        InfeasibleError: when a limit cannot be met by any plan.
    """
    return _build(dict(value), Path(base).resolve(), Origin())


def _build(value: Any, base: Path, origin: Origin) -> Problem:
    base = base.resolve()
    problem = _in_run_dtypes(resolve_paths(problem_form(value, origin, base), base))
    check_problem(problem, origin)
    return problem


def _in_run_dtypes(problem: Problem) -> Problem:
    """The problem with the number type that GGUF files run in, where they run on this machine."""
    here = problem.device == "measured" or device_is_path(problem.device)
    if not here or not {*problem.all_backends} & {*known_backends()}:
        return problem

    def as_run(model: ModelT) -> ModelT:
        if not is_gguf(model.path) or model.dtype != "auto":
            return model
        try:
            return model.model_copy(update={"dtype": run_dtype(read_gguf(model.path))})
        except SpecplanError:  # of which the checks say more
            return model

    drafts = tuple(map(as_run, problem.models.drafts))
    models = Models(target=as_run(problem.models.target), drafts=drafts)
    return problem.model_copy(update={"models": models})


def problem_form(value: Any, origin: Origin, base: Path | None = None) -> Problem:
    """A value as a problem by its form alone: its keys and their types, not what they name.

    Args:
        value: the content of a problem file.
        origin: where it was written, for messages.
        base: where relative paths start; with it, a broken form is reported together with what is
            wrong with the rest.

    Raises:
        UsageError: names the dotted key that is missing, unknown or of another type.
    """
    _check_mapping(value, origin)
    version = value.get("schema_version")
    if type(version) is int and version != SCHEMA_VERSION:
        raise origin.usage(
            "schema_version",
            f"version {version} of the problem format is not supported",
            f"Write schema_version: {SCHEMA_VERSION} and the keys of that version, or use the "
            "specplan that the file was written for.",
        )
    try:
        return Problem.model_validate(value)
    except ValidationError as error:
        errors = form_errors(error, origin)
        further = [] if base is None else _further_errors(value, errors, origin, base)
        raise_together([*errors.values(), *further], origin)
        raise  # never: pydantic had a complaint


def _further_errors(
    value: Mapping[str, Any], broken: Mapping[str, SpecplanError], origin: Origin, base: Path
) -> list[SpecplanError]:
    """What is wrong with the sections of a document that do not depend on the broken keys."""
    whole: dict[str, Any] = copy.deepcopy({**value})
    for key in broken:
        _take_out(whole, key.split("."))
    for name, content in _PLACEHOLDERS.items():
        entry = whole.setdefault(name, content)
        if isinstance(entry, dict) and isinstance(content, dict):
            whole[name] = content | entry
    try:
        problem = resolve_paths(Problem.model_validate(whole), base)
    except ValidationError:
        return []
    sections = {key.partition(".")[0] for key in broken}
    sections |= {"acceptance", "methods"} if sections & {"models", "sources"} else set()
    return [
        error
        for error in word_errors(problem, origin)
        if not any(re.search(rf"(^|: ){section}\b", error.where) for section in sections)
    ]


_PLACEHOLDERS = {
    "schema_version": SCHEMA_VERSION,
    "models": {"target": {"path": "."}},
    "workload": {"batch_sizes": [1]},
}
"""What stands for a required key that is missing, so that the rest can be checked."""


def _take_out(document: Any, key: Sequence[str]) -> None:
    """Delete a dotted key, or the nearest one above it that can be deleted."""
    node = document
    for part in key[:-1]:
        if not isinstance(node, dict) or not isinstance(node.get(part), dict):
            break
        node = node[part]
        key = key[1:]
    if isinstance(node, dict):
        node.pop(key[0], None)


def _check_mapping(value: Any, origin: Origin) -> None:
    if not isinstance(value, dict):
        kind = "is empty" if value is None else f"holds a {type(value).__name__}"
        raise UsageError(
            f"the problem file {kind}, not a mapping of keys to values",
            where=origin.file,
            remedy="Write one with `specplan init`.",
        )
