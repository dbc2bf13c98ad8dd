"""The oracle as a backend: it runs every verified plan, slowly, and defines what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.binding import check_roles, refuse_images
from specplan.backends.oracle.capabilities import CAPABILITIES
from specplan.backends.oracle.session import OracleSession
from specplan.backends.oracle.stacks import Stack, stack_of
from specplan.backends.registry import missing_packages
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.runtime.models.heads.looking_ahead import looking_ahead
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import shared_sources
from specplan.runtime.sources.source import Source


class OracleBackend:
    """Runs what plans mean, one request at a time."""

    capabilities = CAPABILITIES

    def available(self) -> str | None:
        """None when torch and transformers are installed, else what is missing."""
        return missing_packages()

    def compile(self, plan: Plan, models: Mapping[str, Module | Stack]) -> OracleExecutable:
        """An executable for a plan.

        Args:
            plan: any plan; it is verified here.
            models: checkpoints, modules or stacks, by the names the plan gives them.

        Raises:
            UsageError: the plan breaks a rule, or a model is missing.
        """
        check_plan(plan)
        check_roles(plan, models)
        return OracleExecutable(plan, models)


class OracleExecutable:
    """A plan bound to its models; see `specplan.runtime.executable.Executable`."""

    def __init__(self, plan: Plan, models: Mapping[str, Module | Stack]) -> None:
        self.plan = plan
        given = looking_ahead(models, plan.models_run)
        self.stacks = {name: stack_of(model) for name, model in given.items()}
        self.shared = self._new_sources()

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> OracleSession:
        """Begin a batch; texts need no room reserved."""
        if not requests:
            raise UsageError("a batch needs at least one request")
        refuse_images(requests)
        return OracleSession(self.plan, self.stacks, requests, self.shared)

    def forget(self) -> None:
        """See `Executable.forget`."""
        self.shared.update(self._new_sources())

    def _new_sources(self) -> dict[str, Source]:
        return shared_sources(self.plan, self.stacks["target"].vocab_size)


BACKEND = OracleBackend
