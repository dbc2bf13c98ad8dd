"""The public functions; the command line is a thin layer over them.

Everything that needs torch is imported inside the function that needs it, after a check that tells
which extra to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.cost_models.device import Device
    from specplan.planner.method import Method


def problem_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a problem file."""
    from specplan.planner.problem import problem_json_schema

    return problem_json_schema()


def list_methods() -> tuple[Method[Any], ...]:
    """Every drafting method, those of installed packages too, by name.

    Raises:
        UsageError: another package brings a broken method.
    """
    from specplan.planner.method import discover_methods

    return tuple(method for _, method in sorted(discover_methods().items()))


def list_devices() -> tuple[Device, ...]:
    """Every device known by name."""
    from specplan.cost_models.device import list_devices, load_device

    return tuple(load_device(name) for name in list_devices())
