"""The eager backend: every combination of ops, one after another, on a batch of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.binding import BoundPlan, check_requests
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.session import EagerSession
from specplan.backends.registry import missing_packages
from specplan.ir.capabilities import require_support
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request


class EagerBackend:
    """Interprets plans op by op."""

    capabilities = CAPABILITIES

    def available(self) -> str | None:
        """None when torch and transformers are installed, else what is missing."""
        return missing_packages()

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
        return EagerExecutable(plan, models)


class EagerExecutable(BoundPlan):
    """A plan bound to its models, run op by op.

    Attributes:
        analysis: what the plan's ops need to know before they run.
        side_by_side: whether lanes run at once; None: where there are cores for all of them.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Module]) -> None:
        super().__init__(plan, models)
        self.analysis = PlanAnalysis(plan, self.models)
        self.side_by_side: bool | None = None

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> EagerSession:
        """Begin a batch: check the requests and make room for them.

        Args:
            requests: at least one; each prompt has at least one token.
            capacity: tokens of text per row to make room for; what the requests need when None.

        Raises:
            UsageError: names the request and what is wrong with it.
        """
        check_requests(self.plan, self.models, requests, images=True)
        return EagerSession(
            self.analysis, self.models, requests, self.shared, capacity, self.side_by_side
        )


BACKEND = EagerBackend
