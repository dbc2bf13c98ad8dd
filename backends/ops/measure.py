"""`measure`: one number per request."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.ir.errors import UsageError
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.values import Entry


def measure(
    operand: Tree | Nodes | Path | Logits | Tensor, kind: Entry, beside: Logits | None = None
) -> Tensor:
    """A number for each request, float64 `[B]`.

    Of a path the accepted nodes; of a tree or of some of its nodes `count`, those that live, and
    `value`, the sum of their largest path probabilities, or of a tree `listed`, the number that is
    listed for its root's token; of the row of one node, at temperature 1,
    the largest probability `top1`, its `margin` over the next, the `entropy` in nats, or the
    `score` itself; of states the `logistic` function of the first node's, or its `saturation`, the
    cosine similarity with its state `beside`; all 0 where there is no row; of uniforms the first.
    """
    if isinstance(operand, Tensor):
        return operand[:, 0].double()
    if isinstance(operand, Path):
        return operand.accepted.double()
    if isinstance(operand, Logits):
        if kind.name == "saturation":
            assert beside is not None, "the verifier says so"
            first = saturation(operand.values[:, 0], beside.values[:, 0])
            first = first.where(beside.live[:, 0], 0.0)
        elif kind.name == "logistic":
            first = logistic(operand.values[:, 0], kind)
        else:
            first = _of_logits(operand, kind.name)
        return first.where(operand.live[:, 0], 0.0)
    if kind.name == "listed":
        return _listed(operand if isinstance(operand, Tree) else operand.tree, kind)
    nodes = operand
    if isinstance(operand, Tree):
        nodes = Nodes(operand, range(1, operand.columns))
    assert isinstance(nodes, Nodes)
    if kind.name == "value":
        return _value(nodes, kind)
    return (nodes.live & (nodes.columns > 0)).sum(1).double()


def saturation(states: Tensor, below: Tensor) -> Tensor:
    """The cosine similarity of states of two layers, both `[..., H]`; float64 `[...]`."""
    one, other = states.double(), below.double()
    norms = one.square().sum(-1).sqrt() * other.square().sum(-1).sqrt()
    return (one * other).sum(-1) / norms.clamp(min=1e-30)


def logistic(states: Tensor, kind: Entry) -> Tensor:
    """1 / (1 + exp(-weights · x - bias)) of states of root mean square 1, `[..., H]`; float64."""
    given, bias = kind.items("weights"), kind.get("bias", 0.0)
    assert isinstance(bias, int | float)
    if len(given) > states.shape[-1]:
        raise UsageError(
            f"logistic has {len(given)} weights, and the states {states.shape[-1]} entries",
            where="weights",
            remedy="Train exits for this target: `specplan train --exits`.",
        )
    weights = torch.tensor(given, dtype=torch.float64, device=states.device)
    scaled = of_unit_size(states.double())[..., : len(given)]
    return ((scaled * weights).sum(-1) + float(bias)).sigmoid()


def of_unit_size(states: Tensor) -> Tensor:
    """States `[..., H]` scaled to a root mean square of 1, in their number type; 0 stays 0."""
    return states / states.square().mean(-1, keepdim=True).clamp(min=1e-30).sqrt()


def over_batch(numbers: Tensor, taking_part: Tensor, kind: str) -> Tensor:
    """One number for all requests, float64 `[B]`: the largest, mean or sum of those taking part.

    Args:
        numbers: float64 `[B]`.
        taking_part: bool `[B]`.
        kind: `batch_max`, `batch_mean` or `batch_sum`.
    """
    total = numbers.where(taking_part, 0.0).sum()
    whole = {
        "batch_max": numbers.where(taking_part, -torch.inf).max(),
        "batch_mean": total / taking_part.sum().clamp(min=1),
        "batch_sum": total,
    }[kind]
    return whole.expand_as(numbers)


def continued_nodes(operand: Tree | Nodes, keys: Tensor, emitted: Tensor) -> Tensor:
    """Nodes that the text went on with, float64 `[B]`.

    Args:
        operand: a tree, or some of its nodes.
        keys: of the paths that end at the emitted tokens, `[B, W]`.
        emitted: bool `[B, W]`, which of them there are.
    """
    nodes = Nodes(operand, range(1, operand.columns)) if isinstance(operand, Tree) else operand
    same = (nodes.keys[:, :, None] == keys[:, None, :]) & emitted[:, None, :]
    return (same.any(2) & nodes.live & (nodes.columns > 0)).sum(1).double()


def _of_logits(vectors: Logits, kind: str) -> Tensor:
    first = vectors.values[:, 0].double()
    if kind == "score":
        return first[:, 0]
    probs = first.softmax(-1)
    if kind == "entropy":
        return -torch.where(probs > 0, probs * probs.log(), 0.0).sum(-1)
    best = probs.topk(1 if kind == "top1" else 2).values
    return best[:, 0] if kind == "top1" else best[:, 0] - best[:, 1]


def _listed(tree: Tree, kind: Entry) -> Tensor:
    """The number listed for the root's token, 0 for one that is not."""
    root = tree.tokens[:, :1]
    tokens = torch.tensor(kind.items("tokens"), dtype=torch.int64, device=root.device)
    numbers = torch.tensor(kind.items("numbers"), dtype=torch.float64, device=root.device)
    return torch.where(root == tokens, numbers, 0.0).sum(1)


def _value(nodes: Nodes, kind: Entry) -> Tensor:
    scores = nodes.tree.scores
    declared = BUILTIN.find("measure", kind.name)
    assert declared is not None and scores is not None
    chances = nodes.take(scores).double().exp() * (nodes.live & (nodes.columns > 0))
    most = int(declared.arguments(kind)["best"])
    return chances.topk(min(most, chances.shape[1]), dim=1).values.sum(1)
