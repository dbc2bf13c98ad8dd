"""Law `linear`: a weighted sum of logits, as in proxy tuning and classifier-free guidance.

Each model's logits are multiplied by its weight, which the entry has, and by its share, a number
per request, which the op has; either is one where it is left out.

Source: Liu et al. 2024, Tuning Language Models by Proxy, arXiv 2401.08565, eq. 1: weights 1, 1, -1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def combine(logits: Tensor, shares: Tensor | None, *, weights: Sequence[float] = ()) -> Tensor:
    """Logits `[..., V]`: the sum of each model's times its weight and its share."""
    if weights:
        logits = torch.einsum("k,k...v->k...v", logits.new_tensor(weights), logits)
    if shares is None:
        return logits.sum(0)
    return torch.einsum("k...,k...v->...v", shares, logits)
