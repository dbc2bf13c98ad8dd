"""States that a token changes by more than a matrix: Clover's and FSPAD's.

In Clover states attend to one token after the other, each the only key; a state is [s; e], s behind
all tokens so far and e the embedding of the last one. Sources: `specplan.cost_models.models.heads`,
`clover.py` and `eagle.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.runtime.models.heads.layers import Norm


class Attending(nn.Module):
    """s + V e cos(Q norm(s), K e), the cosine by attention head.

    Args:
        width: of states and embeddings.
        heads: attention heads.
        epsilon: of the norm; lengths of queries and keys below it count as it.
    """

    def __init__(self, width: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads, self.epsilon = heads, epsilon
        self.norm = Norm(width, epsilon)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, states: Tensor, embedded: Tensor) -> Tensor:
        """Both `[..., width]`; gives the same."""
        given = self.q(self.norm(states)), self.k(embedded), self.v(embedded)
        query, key, value = (x.unflatten(-1, (self.heads, -1)) for x in given)
        share = functional.cosine_similarity(query, key, dim=-1, eps=self.epsilon)
        mixed: Tensor = (value * share[..., None]).flatten(-2)
        return states + mixed


class Sampling(nn.Module):
    """g + W (SiLU(G e) * U norm(g)): a state picks what belongs to its token (FSPAD).

    Args:
        width: of states and embeddings.
        inner: width between the matrices.
        epsilon: of the norm.
    """

    def __init__(self, width: int, inner: int, epsilon: float) -> None:
        super().__init__()
        self.norm = Norm(width, epsilon)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, states: Tensor, embedded: Tensor) -> Tensor:
        """Both `[..., width]`; gives the same."""
        chosen = functional.silu(self.gate(embedded)) * self.up(self.norm(states))
        added: Tensor = self.down(chosen)
        return states + added


class ByToken(nn.Module):
    """How tokens enter, before the layers and behind them; names of weights are its fields."""

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        one, width = description.by_token, description.hidden_size
        assert one is not None, "of heads whose states attend to tokens"
        epsilon = description.inner_norm
        self.first = Attending(width, one.heads, epsilon) if one.first else None
        self.later = Attending(width, one.heads, epsilon)
        self.norm = Norm(width, epsilon)

    def enter(self, states: Tensor, embedded: Tensor) -> Tensor:
        """The target's states `[B, T, width]`, or own ones `[B, T, 2 width]`, meet a token."""
        width = embedded.shape[-1]
        if states.shape[-1] != width:
            states = self.later(states[..., :width], embedded)
        elif self.first is not None:
            states = self.first(states, embedded)
        return torch.cat([states, embedded], -1)

    def behind(self, states: Tensor) -> Tensor:
        """States `[B, T, 2 width]` after the layers."""
        inner, embedded = states.chunk(2, -1)
        inner = self.norm(inner)
        if self.first is None:
            inner = self.later(inner, embedded)
        return torch.cat([inner, embedded], -1)
