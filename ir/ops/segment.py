"""`segment`: ops that are scheduled together."""

from __future__ import annotations

from dataclasses import dataclass, field

from specplan.ir.context import Context
from specplan.ir.op import Op, Region
from specplan.ir.types import Type


@dataclass(frozen=True, kw_only=True)
class Segment(Op):
    """Ops compiled and scheduled together; has no meaning of its own.

    %c = segment lane=draft {
    %l = segment lane=verify {
    """

    keyword = "segment"
    lane: str | None = None
    fuse: bool = False
    capture: bool = False
    body: Region = field(default_factory=Region)

    def infer(self, context: Context) -> tuple[Type, ...]:
        """What its region yields."""
        return context.region(self.body, lane=self.lane).yields(self.body)


OP = Segment
