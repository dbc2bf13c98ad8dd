"""`compute`: a formula of numbers and truths, request by request, on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate, is_condition


def compute(
    formula: str,
    operands: Mapping[str, Sequence[float]],
    batch: int,
    idle: Callable[[int], bool],
) -> Tensor:
    """A formula for each request: bool `[B]` for a condition, else float64 `[B]`.

    Args:
        formula: in the grammar of `specplan.ir.formula`.
        operands: B numbers each, by name.
        batch: requests.
        idle: whether a request does not matter; it needs no value then, and gets 0.

    Raises:
        UsageError: the formula has no value for a request.
    """
    kind = torch.bool if is_condition(formula) else torch.float64
    values = []
    for request in range(batch):
        try:
            mine = {name: float(numbers[request]) for name, numbers in operands.items()}
            value = evaluate(formula, mine)
        except UsageError:
            if not idle(request):
                raise
            value = 0.0
        values.append(value)
    return torch.tensor(values, dtype=kind)
