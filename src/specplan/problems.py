"""Problems as the front door takes and stores them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from specplan.planner.loading import load_problem, problem_from_dict
from specplan.planner.problem import Problem, device_is_path

ProblemLike: TypeAlias = "Problem | Path | str | Mapping[str, Any]"
"""A checked problem, the path of a problem file, or the same content as a mapping."""


def as_problem(problem: ProblemLike) -> Problem:
    """A checked problem with absolute paths; relative ones in a mapping start at the folder here.

    Raises:
        UsageError: names the dotted key that is wrong.
        InfeasibleError: a limit cannot be met by any plan.
    """
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Mapping):
        return problem_from_dict(problem)
    return load_problem(problem)


def portable(problem: Problem, folder: Path) -> dict[str, Any]:
    """The problem as JSON data with paths relative to `folder`, so that both can move together.

    `problem_from_dict(portable(problem, folder), folder)` is the problem again.
    """

    def relative(path: Any) -> str | None:
        return None if path is None else os.path.relpath(path, folder)

    data = problem.model_dump(mode="json")
    for model in (data["models"]["target"], *data["models"]["drafts"]):
        model["path"] = relative(model["path"])
    for key in ("trace", "prompts"):
        data["workload"][key] = relative(data["workload"][key])
    data["acceptance"] = {name: relative(path) for name, path in data["acceptance"].items()}
    data["profiles"] = relative(data["profiles"])
    if device_is_path(problem.device):
        # "./" keeps a file beside the bundle recognisable as a path
        data["device"] = f"./{relative(problem.device)}"
    return data
