"""What compiles and runs a problem's plans: whether there is such a thing."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from specplan.planner.problem.errors import Origin, nearest
from specplan.planner.problem.schema import NO_BACKEND, Problem


@cache
def known_backends() -> tuple[str, ...]:
    """Names of the compile targets, found by what they state and without importing one."""
    stated = [
        path for top in _folders_of_backends() for path in Path(top).glob("*/capabilities.py")
    ]
    return tuple(sorted(path.parent.name for path in stated))


@cache
def known_engines() -> tuple[str, ...]:
    """Names of the engines that plans are projected onto, found by their tables."""
    tables = [path for top in _folders_of_backends() for path in Path(top).glob("engines/*.yaml")]
    return tuple(sorted(path.stem for path in tables))


def _folders_of_backends() -> list[str]:
    spec = importlib.util.find_spec("specplan.backends")
    return list((spec.submodule_search_locations if spec else None) or [])


def check_backends(problem: Problem, origin: Origin, *, runs_models: bool) -> None:
    """Refuse backends that do not exist, or cannot do what the problem leaves to be measured.

    Args:
        problem: a problem.
        origin: where it was written, for messages.
        runs_models: whether models are run while planning.

    Raises:
        UsageError: naming the dotted key.
    """
    if problem.backends and problem.backend != Problem.model_fields["backend"].default:
        raise origin.usage(
            "backends",
            "backend and backends are both given",
            "Keep one of the two; the first of several backends is taken where others are no gain.",
        )
    for place, name in enumerate(problem.all_backends):
        key = f"backends.{place}" if problem.backends else "backend"
        if name in problem.backends[:place]:
            raise origin.usage(key, f'"{name}" is named twice', "Name each backend once.")
        if name == NO_BACKEND and problem.backends:
            raise origin.usage(
                key,
                f'"{NO_BACKEND}" refuses no plan, and cannot be chosen among others',
                f"Leave it out, or write backend: {NO_BACKEND}.",
            )
        _check(name, key, origin, runs_models)


def _check(backend: str, key: str, origin: Origin, runs_models: bool) -> None:
    runs_here, engine = backend in known_backends(), backend.partition("@")[0]
    if not runs_here and backend != NO_BACKEND and engine not in known_engines():
        raise origin.usage(
            key,
            f'unknown backend "{backend}"',
            nearest(backend, (*known_backends(), *known_engines(), NO_BACKEND)),
        )
    if not runs_here and runs_models:
        raise origin.usage(
            key,
            "measuring the device or acceptance runs models, and there is no backend to run them",
            "Name a device and give ready acceptance profiles, or name a backend that runs here: "
            f"{', '.join(known_backends())}.",
        )
