"""Regions that only some requests enter or go on with: conditions, and loops that end early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.eager.op_runner import Scope, typed
from specplan.backends.ops.when import when as either
from specplan.ir.ops import When

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


class HostStops:
    """The requests of a batch in a loop that may end early, on the host; see `Stops`.

    Attributes:
        trips: int64 `[B]`, trips that each request took so far.
    """

    def __init__(self, session: EagerSession, only: Tensor | None) -> None:
        self._session = session
        self.running = ~torch.tensor(session.idle_rows, dtype=torch.bool)
        if only is not None:
            self.running &= only.cpu()
        self.trips = torch.zeros_like(self.running, dtype=torch.int64)
        session.loops.append(self)

    def any_stopped(self) -> bool:
        """See `Stops.any_stopped`."""
        return not bool(self.running.all())

    def over(self) -> bool:
        """See `Stops.over`."""
        return not bool(self.running.any())

    def passed(self, flag: Tensor) -> None:
        """See `Stops.passed`."""
        self.trips += self.running
        self.running = self.running & ~flag.cpu()

    def end(self) -> None:
        """See `Stops.end`."""
        self._session.loops.pop()
        self._session.trips.append(self.trips)


def when(session: EagerSession, op: When, scope: Scope) -> None:
    """Ops for the requests whose flag holds; the others take what there was."""
    flag = typed(scope[op.flag], Tensor).cpu()
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
