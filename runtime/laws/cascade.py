"""Law `cascade`: the second model's probabilities where it is as sure as the first.

(1 - r) q + r p with r = 1 where max q < max p - alpha TV(p, q), else 0: p the probabilities of the
first model, q those of the second. To defer costs alpha per total variation.

Source: Narasimhan et al. 2024, Faster Cascades via Speculative Decoding, arXiv 2405.19261, the
plug-in of its optimal deferral rule ("OPT").
"""

from __future__ import annotations

import torch
from torch import Tensor


def combine(logits: Tensor, shares: Tensor | None = None, *, alpha: float = 0.1) -> Tensor:
    """Logits `[..., V]` of one of the two models."""
    p, q = logits.softmax(-1)
    distance = (p - q).abs().sum(-1, keepdim=True) / 2
    defers = q.amax(-1, keepdim=True) < p.amax(-1, keepdim=True) - alpha * distance
    return torch.where(defers, logits[0], logits[1])
