"""Laws of `mix`: logits of several models on one node, combined before sampling settings.

Each takes logits `[..., V]` of two models or more, weights (one number per model, or none, so that
all count alike) and the parameters that `specplan.ir.laws` declares; it gives logits `[..., V]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor


def linear(logits: Sequence[Tensor], factors: Sequence[float], weights: object = ()) -> Tensor:
    """A weighted sum of logits; proxy tuning (Liu et al. 2024, arXiv 2401.08565)."""
    named = [float(weight) for weight in weights] if isinstance(weights, tuple) else []
    scales = factors or named or [1.0 / len(logits)] * len(logits)
    return torch.stack([f * row for f, row in zip(scales, logits, strict=True)]).sum(0)


def average(logits: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
    """The logarithm of a weighted mean of distributions: an ensemble."""
    scales = torch.tensor(factors or [1.0] * len(logits), dtype=torch.float64)
    shares = (scales / scales.sum()).tolist()
    parts = [share * row.softmax(-1) for share, row in zip(shares, logits, strict=True)]
    return torch.log(torch.stack(parts).sum(0).clamp(min=1e-300))


def contrastive(
    logits: Sequence[Tensor], factors: Sequence[float], beta: float = 0.5, alpha: float = 0.1
) -> Tensor:
    """What the first model knows better than the second (Yuan et al. 2023, arXiv 2311.08981)."""
    expert, amateur = (row.log_softmax(-1) for row in logits)
    bar = torch.tensor(alpha, dtype=torch.float64).log() + expert.amax(-1, keepdim=True)
    return torch.where(expert >= bar, (1 + beta) * expert - beta * amateur, -1e9)


def cascade(logits: Sequence[Tensor], factors: Sequence[float], alpha: float = 0.1) -> Tensor:
    """The second model where it is as sure as the first (Narasimhan et al. 2024, arXiv 2405.19261).

    The rule OPT of section 4: defer to the first model where the second's largest probability is
    below the first's by more than alpha times their total variation.
    """
    large, small = (row.softmax(-1) for row in logits)
    apart = 0.5 * (large - small).abs().sum(-1, keepdim=True)
    bar = large.amax(-1, keepdim=True) - alpha * apart
    return torch.where(small.amax(-1, keepdim=True) < bar, logits[0], logits[1])


MIXTURES: Mapping[str, Callable[..., Tensor]] = {
    "average": average,
    "cascade": cascade,
    "contrastive": contrastive,
    "linear": linear,
}
"""By the name that plans give them."""
