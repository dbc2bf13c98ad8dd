"""Regions: loops, those that end by request, what only some requests enter, and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.eager.values import Operand, Scope, typed
from specplan.backends.ops.when import when as either
from specplan.ir.ops import Repeat, When

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


class Stops:
    """The requests of a batch in a loop that may end early.

    Attributes:
        running: bool `[B]`, on the host: the next trip counts for them.
        trips: int64 `[B]`, trips that each request took so far.
    """

    def __init__(self, idle: Sequence[bool], only: Tensor | None) -> None:
        self.running = ~torch.tensor(idle, dtype=torch.bool)
        if only is not None:
            self.running &= only.cpu()
        self.trips = torch.zeros_like(self.running, dtype=torch.int64)

    @property
    def over(self) -> bool:
        """Whether every request has stopped."""
        return not bool(self.running.any())

    def passed(self, flag: Tensor) -> None:
        """Count a trip; requests whose flag holds, bool `[B]`, take no further one."""
        self.trips += self.running
        self.running = self.running & ~flag.cpu()


def repeat(session: EagerSession, op: Repeat, scope: Scope) -> None:
    """A number of trips; fewer where every request has asked for no more of them.

    What a request carried when it stopped stays as it was, whoever goes on.
    """
    carried: list[Operand] = [scope[initial] for _, initial in op.carried]
    outer, until = session.trip, op.body.until
    stops = None
    if until is not None:
        stops = Stops(session.idle_rows, None if op.only is None else _flag(scope[op.only]))
        session.loops.append(stops)
    for index in range(op.count):
        if stops is not None and stops.over:
            break
        session.trip = outer * op.count + index
        inner = dict(scope)
        inner.update({p: held for (p, _), held in zip(op.carried, carried, strict=True)})
        session.run(op.body.ops, inner)
        following = [inner[name] for name in op.body.yields]
        if stops is not None and until is not None:
            if not bool(stops.running.all()):
                following = [
                    either(stops.running, new, old)
                    for new, old in zip(following, carried, strict=True)
                ]
            stops.passed(_flag(inner[until]))
        carried = following
    if stops is not None:
        session.loops.pop()
        session.trips.append(stops.trips)
    session.trip = outer
    scope.update(zip(op.results, carried, strict=True))


def _flag(held: Operand) -> Tensor:
    return typed(held, Tensor)


def when(session: EagerSession, op: When, scope: Scope) -> None:
    """Ops for the requests whose flag holds; the others take what there was."""
    flag = _flag(scope[op.flag]).cpu()
    outer = session.active
    entered = flag if outer is None else flag & torch.tensor(outer)
    if not bool(entered.any()):
        scope.update(
            {name: scope[other] for name, other in zip(op.results, op.otherwise, strict=True)}
        )
        return
    inner = dict(scope)
    session.active = None if bool(entered.all()) else entered.tolist()
    try:
        session.run(op.body.ops, inner)
    finally:
        session.active = outer
    for name, new, other in zip(op.results, op.body.yields, op.otherwise, strict=True):
        scope[name] = either(flag, inner[new], scope[other])
