"""`refresh`: rebuild a view of a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import CacheState, Plan
from specplan.ir.types.context import Context
from specplan.ir.values import State
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Refresh(Op):
    """Rebuild a view of a cache by its policy.

    state @part = cache target view=@kv policy=retrieved(chunk=8) budget=4096
    refresh @part
    """

    keyword = "refresh"
    positional = ("state",)
    touches = (("state", ("cache",)),)
    state: State

    def infer(self, context: Context) -> tuple[()]:
        """No result; the state must be a view."""
        cache = context.plan.state(self.state)
        if isinstance(cache, CacheState) and not cache.view:
            raise RuleError("view", f"refresh rebuilds views, and @{self.state} has no view=")
        return ()

    def demand(self, step: Step, plan: Plan) -> Work:
        """The view, which is filled by its policy."""
        view = plan.state(self.state)
        if not isinstance(view, CacheState) or view.policy is None:
            return Work(self.keyword, view=view if isinstance(view, CacheState) else None)
        return Work(f"{self.keyword}:{view.policy.name}", view=view)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The view copies its cache again."""
        world.refresh(self.state)
        return ()


OP = Refresh
