"""States of several levels that attend to each other, both ways (Amphista).

Sources: `specplan.cost_models.models.heads.amphista`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.runtime.models.heads.layers import Norm


class AutoEmbedding(nn.Module):
    """A residual block for each level, and one layer in which the levels' states attend.

    A level asks alone: keys and values are of all levels, whatever asks.
    """

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        one, width, epsilon = description.levels, description.hidden_size, description.inner_norm
        inner = int(description.body.config["intermediate_size"])
        self.heads, self.first_stage = one.mixed, one.first_stage
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(one.count))
        self.positions = nn.Parameter(torch.empty(one.count, width))
        self.norm, self.middle = Norm(width, epsilon), Norm(width, epsilon)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, stages: Tensor, level: int) -> Tensor:
        """From both stages side by side `[..., 2 width]` to a level's state, `[..., width]`."""
        early, late = stages.chunk(2, -1)
        read = (early if n < self.first_stage else late for n in range(len(self.blocks)))
        own = [x + functional.silu(block(x)) for x, block in zip(read, self.blocks, strict=True)]
        states = torch.stack(own, -2) + self.positions
        normed, state = self.norm(states), states[..., level, :]
        query, key, value = (
            x.unflatten(-1, (self.heads, -1))
            for x in (self.q(normed[..., level, :]), self.k(normed), self.v(normed))
        )
        scores = (query[..., None, :, :] * key).sum(-1) * query.shape[-1] ** -0.5
        mixed = (scores.softmax(-2)[..., None] * value).sum(-3).flatten(-2)
        state = state + self.o(mixed)
        given = self.middle(state)
        fed = self.down(functional.silu(self.gate(given)) * self.up(given))
        return cast(Tensor, state + fed)
