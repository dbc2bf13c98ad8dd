"""One number or truth per request: what is measured, and what is computed of it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specplan.backends.reference.values import Path, Tree, live_mask
from specplan.ir.formula import evaluate, is_condition


def measure(operand: Tree | Path) -> Tensor:
    """Live nodes of a tree, or accepted nodes of a path, float64 `[B]`."""
    if isinstance(operand, Tree):
        return live_mask(operand).sum(1).to("cpu", torch.float64)
    return torch.tensor([len(nodes) for nodes in operand.nodes], dtype=torch.float64)


def compute(formula: str, operands: Mapping[str, Tensor], batch: int) -> Tensor:
    """A formula for each request: bool `[B]` for a condition, else float64 `[B]`."""
    kind = torch.bool if is_condition(formula) else torch.float64
    found = [
        evaluate(formula, {name: float(held[row]) for name, held in operands.items()})
        for row in range(batch)
    ]
    return torch.tensor(found, dtype=kind)
