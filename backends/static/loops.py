"""Loops that end by request, as one straight line: all trips run, for whoever goes on.

What a trip drafts for a request that has stopped is dead: it is neither judged nor emitted, nor
does a cache keep it. That it is computed nonetheless is the price of a round without a look at the
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from specplan.backends.reference.stopping import kept
from specplan.backends.reference.values import held_as
from specplan.backends.static.values import Held, Scope
from specplan.ir.ops import Repeat

if TYPE_CHECKING:
    from specplan.backends.static.tracing import RoundRun


def repeat(run: RoundRun, op: Repeat, scope: Scope) -> None:
    """All trips of a loop that may end early; the lowered plan has no others."""
    carried: list[Held] = [scope[initial] for _, initial in op.carried]
    until = op.body.until
    assert until is not None, "loops without `until` are unrolled before"
    everyone = run.active
    if op.only is not None:
        run.active = run.active & held_as(scope, op.only, Tensor)
    for run.trip in range(op.count):
        inner = dict(scope)
        inner.update({p: held for (p, _), held in zip(op.carried, carried, strict=True)})
        run.run(op.body.ops, inner)
        following = [inner[name] for name in op.body.yields]
        carried = [kept(run.active, *both) for both in zip(carried, following, strict=True)]
        run.active = run.active & ~held_as(inner, until, Tensor)
    run.trip, run.active = 0, everyone
    scope.update(zip(op.results, carried, strict=True))
