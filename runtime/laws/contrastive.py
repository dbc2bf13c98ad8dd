"""Law `contrastive`: what the first model knows better than the second.

Proportional to p^(1 + beta) / q^beta on the plausible set {x: p(x) >= alpha max p}, p the
probabilities of the first model and q those of the second. With beta 0 it is p on that set.

Source: Yuan et al. 2023, Speculative Contrastive Decoding, arXiv 2311.08981; the plausible set: Li
et al. 2022, arXiv 2210.15097.
"""

from __future__ import annotations

import torch
from torch import Tensor


def combine(
    logits: Tensor, shares: Tensor | None = None, *, beta: float = 0.5, alpha: float = 0.1
) -> Tensor:
    """Logits `[..., V]` of the contrast; implausible tokens have minus infinity."""
    first, second = logits.log_softmax(-1)
    plausible = first.exp() >= alpha * first.exp().amax(-1, keepdim=True)
    least = torch.finfo(second.dtype).tiny
    score = (1.0 + beta) * first - beta * second.clamp(min=torch.tensor(least).log().item())
    return torch.where(plausible & first.isfinite(), score, -torch.inf)
