"""A graph's ops on numbers of each request: measured, computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager.values import Scope, typed
from specplan.backends.ops.measure import measure as measured
from specplan.backends.ops.measure import over_batch, said
from specplan.backends.static.traced.formulas import Formula
from specplan.ir.ops import Compute, Measure
from specplan.ir.values import State

if TYPE_CHECKING:
    from specplan.backends.static.traced.round_run import RoundRun


def measure(run: RoundRun, op: Measure, scope: Scope) -> None:
    """One number per request."""
    if isinstance(op.operand, State):
        scope[op.results[0]] = _lag(run, op.operand, op.kind.get("layers"))
        return
    operand: Any = scope[op.operand]
    if op.kind.name.startswith("batch_"):
        number = over_batch(operand, run.counting(), op.kind.name)
    elif op.kind.name == "said":
        _, keys, emitted = run.batch.written
        number = said(operand, keys, emitted)
    else:
        number = measured(operand, op.kind)
    scope[op.results[0]] = number


def _lag(run: RoundRun, state: State, layers: Any) -> Tensor:
    """Text tokens that some of a cache's layers lack."""
    cache = run.caches[state]
    inside = [span for span in cache.segments if span[0] < layers.stop and span[1] > layers.start]
    return (run.batch.ends - cache.resident(inside, scratch=False))[:, 0].double()


def compute(run: RoundRun, op: Compute, scope: Scope) -> None:
    """Arithmetic on numbers; notes the requests for which a formula has no value.

    The interpreter ends there with an error. A request that has stopped or is done has a value of
    no meaning.
    """
    operands = {name: typed(scope[value], Tensor).double() for name, value in op.operands}
    formula = Formula(run.given.lengths)
    scope[op.results[0]] = formula.of(op.formula, {**_around(run), **operands})
    if formula.failed is not None:
        known = torch.zeros_like(run.given.lengths) if run.failed is None else run.failed
        first = formula.failed & run.counting() & run.running & (known == 0)
        place = run.graph.inputs.formulas.index(op.formula) + 1
        run.failed = torch.where(first, place, known)


def _around(run: RoundRun) -> dict[str, Tensor]:
    """What formulas read beside their operands, float64 `[B]` by name."""
    wanted, given = ~run.batch.done, run.given
    return {
        "batch": wanted.sum().double().expand_as(given.lengths),
        "context": run.batch.lengths.where(wanted, 0).max().double().expand_as(given.lengths),
        "emitted": (given.lengths - given.prompts).double(),
        "phase": torch.zeros_like(given.lengths, dtype=torch.float64),
    }
