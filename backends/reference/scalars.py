"""One number or truth per request: what is measured, and what is computed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from specplan.backends.reference.values import Nodes, Path, Rows, Tree, live_mask, per_request
from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate, is_condition
from specplan.ir.tables import BUILTIN
from specplan.ir.values import Entry


def measure(operand: Tree | Nodes | Path | Rows | Tensor, kind: Entry) -> Tensor:
    """A number for each request, float64 `[B]`.

    Accepted nodes of a path; `count`, live nodes of a tree or among some of its nodes, and `value`,
    the sum of the largest path probabilities of these; of the row of one node, at temperature 1,
    the largest probability `top1`, its `margin` over the next, and the `entropy` in nats; of
    uniforms `[B, N]` the first.
    """
    if isinstance(operand, Tensor):
        return operand[:, 0].double()
    if isinstance(operand, Path):
        return torch.tensor([len(nodes) for nodes in operand.nodes], dtype=torch.float64)
    if isinstance(operand, Tree | Nodes):
        tree = operand.tree if isinstance(operand, Nodes) else operand
        only = per_request(operand.drafted, tree.tokens) if isinstance(operand, Nodes) else None
        if kind.name == "value":
            declared = BUILTIN.find("measure", kind.name)
            assert declared is not None
            return _value(tree, only, int(declared.arguments(kind)["best"]))
        return _of(live_mask(tree), only).sum(1).double()
    law = operand.logits[:, 0].double().softmax(-1)
    if kind.name == "entropy":
        return -torch.where(law > 0, law * law.log(), 0.0).sum(-1)
    best = law.topk(1 if kind.name == "top1" else 2).values
    return best[:, 0] if kind.name == "top1" else best[:, 0] - best[:, 1]


def _value(tree: Tree, only: Tensor | None, best: int) -> Tensor:
    if tree.scores is None:  # no node yet
        return torch.zeros(len(tree.tokens), dtype=torch.float64)
    chances = _of(tree.scores.double().exp() * live_mask(tree), only)
    return chances.topk(min(best, chances.shape[1]), dim=1).values.sum(1)


def _of(each: Tensor, only: Tensor | None) -> Tensor:
    """What is told of each node `[B, N]`, of some nodes `[B, W]` alone."""
    return each if only is None else each.gather(1, only)


def compute(
    formula: str, operands: Mapping[str, Tensor], batch: int, idle: Callable[[int], bool]
) -> Tensor:
    """A formula for each request: bool `[B]` for a condition, else float64 `[B]`.

    Args:
        formula: in the grammar of `specplan.ir.formula`.
        operands: float64 or bool `[B]`, by name.
        batch: requests.
        idle: whether a request does not matter; it needs no value then, and gets 0.

    Raises:
        UsageError: the formula has no value for a request.
    """
    kind = torch.bool if is_condition(formula) else torch.float64
    found = []
    for row in range(batch):
        try:
            value = evaluate(formula, {name: float(held[row]) for name, held in operands.items()})
        except UsageError:
            if not idle(row):
                raise
            value = 0.0
        found.append(value)
    return torch.tensor(found, dtype=kind)
