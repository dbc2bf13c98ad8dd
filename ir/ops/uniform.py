"""`uniform`: read random numbers in [0, 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import UniformsType
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Uniform(Op):
    """Numbers in [0, 1) from a request's own stream; an input of the round.

    %u = uniform 1 stream=draft
    %v = uniform 6 stream=race key=position
    """

    keyword = "uniform"
    positional = ("count",)
    count: int
    stream: str
    offset: int = 0
    key: Literal["round", "position"] = "round"

    def infer(self, context: Context) -> tuple[UniformsType]:
        """`count` numbers."""
        if self.count < 1:
            raise RuleError("size", "uniform needs a count of at least 1")
        return (UniformsType(self.count),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One input of the round."""
        return Work(self.keyword)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Numbers of the stream; each trip of the loops around reads the next ones."""
        offset = self.offset + world.trip * self.count
        return (world.uniforms(self.stream, self.key, offset, self.count),)


OP = Uniform
