"""A discriminator that learns to tell a target's distributions from those of a drafter."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.runtime.models.causal import CausalModel
from specplan.training.new_heads import SPREAD


class Discriminator(nn.Module):
    """A logit of a distribution: two layers on the mean of its tokens' rows of the LM head.

    KOALA (arXiv 2408.08146) trains draft heads with such an opponent; its form is ours. Rows of the
    LM head keep it small: nothing of it is as large as the vocabulary.

    Args:
        target: whose rows it reads, in whose number type it is.
        known: the target's ids of the drafter's vocabulary; None for all.
        seed: of its matrices.
    """

    rows: Tensor

    def __init__(self, target: CausalModel, known: Tensor | None, seed: int) -> None:
        super().__init__()
        width = target.hidden_size
        unit = torch.eye(width, dtype=target.dtype, device=target.device)
        with torch.no_grad():
            rows = target.head(unit).T
        self.register_buffer("rows", rows if known is None else rows[known], persistent=False)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, 1)
        self.to(device=target.device, dtype=target.dtype)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.parameters():
                drawn = torch.randn(weight.shape, generator=generator) * SPREAD
                weight.copy_(drawn if weight.ndim > 1 else torch.zeros_like(drawn))

    def forward(self, shares: Tensor) -> Tensor:
        """Distributions `[N, vocabulary]` to logits `[N]` that they are the target's."""
        mean = shares.to(self.rows.dtype) @ self.rows
        judged: Tensor = self.outer(functional.silu(self.inner(mean)))[..., 0]
        return judged
