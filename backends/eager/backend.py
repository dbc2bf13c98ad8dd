"""The eager backend: every combination of ops, one after another, on a batch of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.eager.prepared import prepare
from specplan.backends.eager.session import EagerSession
from specplan.backends.reference.backend import ReferenceBackend, ReferenceExecutable
from specplan.ir.plan import Plan
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request


class EagerBackend(ReferenceBackend):
    """Interprets plans op by op."""

    capabilities = CAPABILITIES

    def compile(self, plan: Plan, models: Mapping[str, CausalModel]) -> EagerExecutable:
        """An executable for a plan; see `ReferenceBackend.compile`."""
        super().compile(plan, models)
        return EagerExecutable(plan, models)


class EagerExecutable(ReferenceExecutable):
    """A plan bound to its models, and to what its sources learned of requests of all batches."""

    def __init__(self, plan: Plan, models: Mapping[str, CausalModel]) -> None:
        super().__init__(plan, models)
        self.prepared = prepare(plan, models)

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> EagerSession:  # type: ignore[override]
        """Begin a batch; see `ReferenceExecutable.start`."""
        self.check(requests)
        return EagerSession(
            self.prepared, self.models, requests, self.shared, capacity, self.side_by_side
        )


BACKEND = EagerBackend
