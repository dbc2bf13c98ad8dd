"""Reading a problem: a YAML file or a Python dict to a checked `Problem`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text
from specplan.planner.problem.checks import check_problem
from specplan.planner.problem.errors import Origin, flag_of, from_validation_error
from specplan.planner.problem.paths import resolve_paths
from specplan.planner.problem.schema import SCHEMA_VERSION, Problem
from specplan.planner.problem.short_form import KEY_OF, merged, with_settings
from specplan.planner.problem.yaml_text import read_yaml


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
    flags |= {setting.partition("=")[0]: "--set" for setting in settings}
    document, lines = None, dict[str, int]()
    if path is not None:
        document, lines = read_yaml(read_text(path, "problem file"), str(path))
        _check_mapping(document, Origin(str(path)))
    value = with_settings(merged(document, short), settings)
    origin = Origin("" if path is None else str(path), lines, flags)
    return _build(value, Path() if path is None else path.resolve().parent, origin)


def problem_from_dict(value: Mapping[str, Any], base: Path | str = ".") -> Problem:
    """The same from a Python mapping; relative paths are taken from the folder `base`.

    Raises:
        UsageError: when a value, or anything that it names, is broken; names the dotted key.
        InfeasibleError: when a limit cannot be met by any plan.
    """
    return _build(dict(value), Path(base).resolve(), Origin())


def _build(value: Any, base: Path, origin: Origin) -> Problem:
    problem = resolve_paths(problem_form(value, origin), base.resolve())
    check_problem(problem, origin)
    return problem


def problem_form(value: Any, origin: Origin) -> Problem:
    """A value as a problem by its form alone: its keys and their types, not what they name.

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
        raise from_validation_error(error, origin) from None


def _check_mapping(value: Any, origin: Origin) -> None:
    if not isinstance(value, dict):
        kind = "is empty" if value is None else f"holds a {type(value).__name__}"
        raise UsageError(
            f"the problem file {kind}, not a mapping of keys to values",
            where=origin.file,
            remedy="Write one with `specplan init`.",
        )
