"""The eager backend: every combination of ops, one after another, on a batch of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.binding import check_models, check_requests
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.eager.prepared import prepare
from specplan.backends.eager.session import EagerSession
from specplan.ir.capabilities import require_support
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.runtime import require_torch
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import shared_sources
from specplan.runtime.sources.source import Source


class EagerBackend:
    """Interprets plans op by op."""

    capabilities = CAPABILITIES

    def available(self) -> str | None:
        """None when torch and transformers are installed, else what is missing."""
        try:
            require_torch()
        except MissingCapabilityError as error:
            return str(error)
        return None

    def compile(self, plan: Plan, models: Mapping[str, Module]) -> EagerExecutable:
        """An executable for a plan.

        Args:
            plan: any plan; it is verified here.
            models: by the names the plan gives them.

        Raises:
            UsageError: the plan breaks a rule, or a model is missing or is not the plan's.
            MissingCapabilityError: names the first op that cannot run here.
        """
        check_plan(plan)
        require_support(plan, self.capabilities)
        check_models(plan, models)
        return EagerExecutable(plan, models)


class EagerExecutable:
    """A plan bound to its models, and to what its sources learned of requests of all batches.

    Attributes:
        plan: what runs.
        models: by the names the plan gives them.
        prepared: what the plan's ops need to know before they run.
        shared: sources that outlive a batch, by name; see `Executable`.
        side_by_side: whether lanes run at once; None: where there are cores for all of them.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Module]) -> None:
        self.plan = plan
        self.models = dict(models)
        self.prepared = prepare(plan, models)
        self.shared = self._new_sources()
        self.side_by_side: bool | None = None

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> EagerSession:
        """Begin a batch: check the requests and make room for them.

        Args:
            requests: at least one; each prompt has at least one token.
            capacity: tokens of text per row to make room for; what the requests need when None.

        Raises:
            UsageError: names the request and what is wrong with it.
        """
        check_requests(self.plan, self.models, requests)
        return EagerSession(
            self.prepared, self.models, requests, self.shared, capacity, self.side_by_side
        )

    def forget(self) -> None:
        """See `Executable.forget`."""
        self.shared.update(self._new_sources())

    def _new_sources(self) -> dict[str, Source]:
        return shared_sources(self.plan, self.models["target"].vocab_size)


BACKEND = EagerBackend
