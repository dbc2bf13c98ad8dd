"""Engines by name and version; one is three files in this folder (see the package's docstring)."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, cast

from specplan.backends.engines.table import Table, read_tables
from specplan.ir.capabilities import backend_name
from specplan.ir.errors import UsageError
from specplan.ir.files import stems

if TYPE_CHECKING:
    from specplan.backends.engines.job import Emission, Job


def engine_names() -> tuple[str, ...]:
    """Names of all engines, sorted."""
    return stems(resources.files("specplan.backends.engines"))


def is_engine(text: str) -> bool:
    """Whether `NAME` or `NAME@VERSION` names an engine, of whatever version."""
    return backend_name(text).partition("@")[0] in engine_names()


def open_table(text: str, *, any_version: bool = False) -> Table:
    """What an engine can express.

    Args:
        text: `NAME`, for the newest version that is known, or `NAME@VERSION`.
        any_version: take the newest known version for one that is not known.

    Raises:
        UsageError: no engine has that name, or nothing was verified for that version.
    """
    name, _, version = backend_name(text).partition("@")
    if name not in engine_names():
        close = difflib.get_close_matches(name, engine_names(), n=1)
        raise UsageError(
            f'unknown engine "{name}"',
            remedy=f'Did you mean "{close[0]}"?'
            if close
            else f"Known: {', '.join(engine_names())}.",
        )
    tables = read_tables(name)
    newest = next(iter(tables.values()))
    if not version:
        return newest
    for known, table in tables.items():
        if f"{version}.".startswith(f"{known}.") or _later_build(version, table.build):
            return table if version == known else replace(table, asked=version)
    if any_version:
        return replace(newest, asked=version)
    raise UsageError(
        f"what {newest.title} {version} understands has not been verified",
        where=f"engine {name}",
        remedy=f"Known: {', '.join(tables)}. Take one of them; `specplan emit --any-version` "
        f"writes for {newest.version}, to be checked by you.",
    )


def _later_build(version: str, first: int | None) -> bool:
    """Whether the version is a build number, `b11517`, from the table's first build on."""
    number = version.removeprefix("b")
    return first is not None and number != version and number.isdigit() and int(number) >= first


def project(table: Table, job: Job) -> Emission:
    """The files and the command that serve a plan which the engine expresses."""
    module = importlib.import_module(f"specplan.backends.engines.{table.engine}")
    return cast("Callable[[Job], Emission]", module.project)(job)


def all_tables() -> tuple[Table, ...]:
    """The tables of all engines, those of an engine with the newest version first."""
    return tuple(table for name in engine_names() for table in read_tables(name).values())


def engines_by_draft() -> dict[tuple[str, str], tuple[str, ...]]:
    """Names of the engines, newest version of each, by who drafts and the shape of the drafts."""
    engines: dict[tuple[str, str], list[str]] = {}
    for name in engine_names():
        for drafter, ability in open_table(name).drafters.items():
            for shape in ability.shapes:
                engines.setdefault((drafter, shape), []).append(name)
    return {draft: tuple(names) for draft, names in engines.items()}
