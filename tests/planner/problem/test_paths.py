"""Every path of a problem moves with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from specplan.planner.problem.paths import resolve_paths
from specplan.planner.problem.schema import Problem, Workload
from specplan.problems import portable
from tests.planner.example_facts import example_problem

LIMIT = {"measure": "outputs_differ", "at_most": 0.05, "prompts": "limit.jsonl"}


def paths_of(kind: type[BaseModel]) -> set[str]:
    """Names of the fields that hold a path."""
    fields = kind.model_fields.items()
    return {n for n, one in fields if Path in (one.annotation, *get_args(one.annotation))}


def files(value: Any) -> Iterator[Path]:
    """Every path in a problem."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, BaseModel):
        yield from files(dict(value))
    elif isinstance(value, dict):
        yield from (path for one in value.values() for path in files(one))
    elif isinstance(value, tuple):
        yield from (path for one in value for path in files(one))


def test_every_path_of_a_problem_moves_with_it(tmp_path: Path) -> None:
    data = example_problem(device="./device.json")
    data |= {key: f"{key}.file" for key in paths_of(Problem)}
    data["workload"] |= {key: f"{key}.file" for key in paths_of(Workload)}
    data["acceptance"] = {"draft": "draft.json"}
    data["limits"] = {"quality": LIMIT}
    problem = resolve_paths(Problem.model_validate(data), tmp_path)
    assert all(path.is_absolute() for path in files(problem))
    assert len({*files(problem)}) == len(paths_of(Problem) | paths_of(Workload)) + 4

    elsewhere = tmp_path / "else" / "where"
    moved = portable(problem, elsewhere)
    assert str(tmp_path) not in str(moved)
    assert resolve_paths(Problem.model_validate(moved), elsewhere) == problem
