"""Law `average`: the mean of the models' probabilities, weighted where the op says how.

Source: Fu et al. 2025, Speculative Ensemble, arXiv 2502.01662, eq. 4.
"""

from __future__ import annotations

import torch
from torch import Tensor


def combine(logits: Tensor, shares: Tensor | None) -> Tensor:
    """Logits `[..., V]` of the mean; shares `[K, ...]` are made to sum to one."""
    probabilities = logits.softmax(-1)
    if shares is None:
        return probabilities.mean(0).log()
    parts = shares / shares.sum(0, keepdim=True)
    return torch.einsum("k...,k...v->...v", parts, probabilities).log()
