"""specplan: a compiler for LLM decoding.

``specplan.optimize(problem)`` finds the decoding plan that is fastest for one target model, device
and workload. Names load on first use, so importing the package is quick and loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.api import list_devices, list_methods, problem_schema
    from specplan.ir.errors import (
        InfeasibleError,
        MissingCapabilityError,
        NothingToCompareError,
        RegressionError,
        SpecplanError,
        UsageError,
    )

_HOMES = {
    "InfeasibleError": "specplan.ir.errors",
    "MissingCapabilityError": "specplan.ir.errors",
    "NothingToCompareError": "specplan.ir.errors",
    "RegressionError": "specplan.ir.errors",
    "SpecplanError": "specplan.ir.errors",
    "UsageError": "specplan.ir.errors",
    "list_devices": "specplan.api",
    "list_methods": "specplan.api",
    "problem_schema": "specplan.api",
}

__all__ = [
    "InfeasibleError",
    "MissingCapabilityError",
    "NothingToCompareError",
    "RegressionError",
    "SpecplanError",
    "UsageError",
    "__version__",
    "list_devices",
    "list_methods",
    "problem_schema",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home module on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("specplan")
    if name not in _HOMES:
        raise AttributeError(f"module 'specplan' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not."""
    return sorted({*globals(), *__all__})
