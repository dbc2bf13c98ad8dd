"""Loops and conditions, as one straight line: everything runs, for whom it counts.

What a trip drafts for a request that has stopped is dead: it is neither judged nor emitted, nor
does a cache keep it. That it is computed nonetheless is the price of a round without a look at the
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from specplan.backends.eager.values import Operand, Scope, typed
from specplan.backends.ops.when import when as either
from specplan.ir.ops import Repeat, Segment, When

if TYPE_CHECKING:
    from specplan.backends.static.traced.round_run import RoundRun


def repeat(run: RoundRun, op: Repeat, scope: Scope) -> None:
    """All trips of a loop; what a request carried when it stopped stays as it was."""
    carried: list[Operand] = [scope[initial] for _, initial in op.carried]
    until, outer, everyone = op.body.until, run.trip, run.running
    all_run = op.only is None
    if op.only is not None:
        run.running = run.running & typed(scope[op.only], Tensor)
    for index in range(op.count):
        run.trip = outer * op.count + index
        inner = dict(scope)
        inner.update({p: value for (p, _), value in zip(op.carried, carried, strict=True)})
        run.run(op.body.ops, inner)
        following = [inner[name] for name in op.body.yields]
        if not all_run:
            pairs = zip(following, carried, strict=True)
            following = [either(run.running, new, old) for new, old in pairs]
        carried = following
        if until is not None:
            run.running = run.running & ~typed(inner[until], Tensor)
            all_run = False
    run.trip, run.running = outer, everyone
    scope.update(zip(op.results, carried, strict=True))


def when(run: RoundRun, op: When, scope: Scope) -> None:
    """Ops for the requests whose flag holds; the others take what there was."""
    flag, outer = typed(scope[op.flag], Tensor), run.active
    run.active = flag if outer is None else outer & flag
    lacking = {name: dict(cache.lacking) for name, cache in run.caches.items()}
    inner = dict(scope)
    run.run(op.body.ops, inner)
    run.active = outer
    for name, cache in run.caches.items():  # the others have not taken in what these have
        known = lacking[name]
        cache.lacking = {where: max(known[where], now) for where, now in cache.lacking.items()}
    for name, new, other in zip(op.results, op.body.yields, op.otherwise, strict=True):
        scope[name] = either(flag, inner[new], scope[other])


def segment(run: RoundRun, op: Segment, scope: Scope) -> None:
    """Ops one after another: all of a round is one graph."""
    inner = dict(scope)
    run.run(op.body.ops, inner)
    yielded = (inner[name] for name in op.body.yields)
    scope.update(zip(op.results, yielded, strict=True))
