"""`commit`: keep what was computed for emitted tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import PathType, TreeType
from specplan.ir.values import State, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Commit(Op):
    """Keep the computed prefix of the emitted path in a state, and drop all other drafted nodes.

    commit @kv %e
    commit @dkv %e alive=%s
    """

    keyword = "commit"
    positional = ("state", "path")
    touches = (("state", ("cache", "track")),)
    writes = ("state",)
    gone = (
        ("keep", "a drafter's own nodes are run with write=scratch"),
        ("layers", "a commit is of all layers"),
    )
    state: State
    path: Value
    alive: Value | None = None

    def infer(self, context: Context) -> tuple[()]:
        """No result; the operands must be a path and a tree."""
        context.expect(self.path, PathType, "commit")
        if self.alive is not None:
            context.expect(self.alive, TreeType, "alive")
        return ()

    def demand(self, step: Step, plan: Plan) -> Work:
        """A chain stays where it is; a tree's path is moved."""
        path = step.reads[self.path]
        assert isinstance(path, PathType)
        return Work("commit:chain" if path.chain else "commit:tree")

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Emitted tokens stay; all other drafted nodes of the round are forgotten."""
        world.commit(self.state, None if self.alive is None else scope[self.alive])
        return ()


OP = Commit
