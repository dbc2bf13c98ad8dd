"""What a backend is: capabilities as data, and `compile` once, run many times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from specplan.ir.capabilities import Capabilities
from specplan.ir.plan import Plan


class Backend(Protocol):
    """A compile target."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can run."""
        ...

    def available(self) -> str | None:
        """None when it can run here, else what is missing; imports nothing heavy."""
        ...

    def compile(self, plan: Plan, models: Mapping[str, Any]) -> Any:
        """An executable (`specplan.runtime.executable.Executable`) for a verified plan.

        Raises:
            MissingCapabilityError: names the first op that the backend cannot run.
        """
        ...
