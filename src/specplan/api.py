"""The public functions; the command line is a thin layer over them.

Everything that needs torch is imported inside the function that needs it, after a check that tells
which extra to install.
"""

from __future__ import annotations

from typing import Any


def problem_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a problem file."""
    from specplan.planner.problem import problem_json_schema

    return problem_json_schema()
