"""The last pass before a backend: what it cannot run is refused by name, nothing is dropped."""

from __future__ import annotations

from dataclasses import dataclass

from specplan.ir.capabilities import Capabilities, require_support
from specplan.ir.plan import Plan


@dataclass(frozen=True)
class Legalise:
    """A plan -> the same plan, if the backend runs every op of it.

    Attributes:
        capabilities: of the backend.
    """

    capabilities: Capabilities

    def __call__(self, plan: Plan) -> Plan:
        """The plan.

        Raises:
            MissingCapabilityError: names the first op or state that the backend cannot run.
        """
        require_support(plan, self.capabilities)
        return plan
