"""A graph's ops on numbers of each request: measured, computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.reference import scalars
from specplan.backends.reference.values import Nodes, Rows, Tree, held_as
from specplan.backends.static.formulas import Formula
from specplan.backends.static.values import Path, Scope
from specplan.ir.ops import Compute, Measure
from specplan.ir.values import Value

if TYPE_CHECKING:
    from specplan.backends.static.tracing import RoundRun


def measure(run: RoundRun, op: Measure, scope: Scope) -> None:
    """One number per request."""
    operand = scope[Value(op.operand)]
    if isinstance(operand, Path):
        scope[op.results[0]] = operand.accepted.minimum(operand.count).double()
        return
    assert isinstance(operand, Tree | Nodes | Rows | Tensor)
    scope[op.results[0]] = scalars.measure(operand, op.kind)


def compute(run: RoundRun, op: Compute, scope: Scope) -> None:
    """Arithmetic on numbers; notes the requests for which a formula has no value.

    The interpreter ends there with an error. A request that has stopped or is done has a value of
    no meaning.
    """
    operands = {name: held_as(scope, value, Tensor).double() for name, value in op.operands}
    formula = Formula(run.given.lengths)
    scope[op.results[0]] = formula.of(op.formula, operands)
    if formula.failed is not None:
        known = torch.zeros_like(run.given.lengths) if run.failed is None else run.failed
        first = formula.failed & run.active & (known == 0)
        place = run.graph.inputs.formulas.index(op.formula) + 1
        run.failed = torch.where(first, place, known)


SCALARS: dict[type, Callable[[Any, Any, Scope], None]] = {
    Measure: measure,
    Compute: compute,
}
"""By op; called with the run, the op and the values so far, to which results are added."""
