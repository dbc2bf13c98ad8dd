"""Small random modules that read hidden states of a target, one class for every plan's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request


class Module:
    """A drafter, judge or sentence model: token and feature are joined, layers run, rows follow.

    Args:
        target: whose embeddings, width and head it takes over.
        layers: attention layers of its own.
        features: states of the target that it reads at once.
        stages: steps with weights of their own.
        body: whose layers run in place of its own; None for an attention without an MLP.
    """

    optional_features = False
    kv_heads, head_dim = 2, 4

    def __init__(
        self, target: CausalModel, *, layers: int = 0, features: int = 1, stages: int = 4
    ) -> None:
        made = torch.Generator().manual_seed(1)
        self.target, self.num_layers, self.stages = target, layers, stages
        self.vocab_size, self.max_positions = target.vocab_size, target.max_positions
        self.hidden_size, self.dtype = target.hidden_size, target.dtype
        self.logits_dtype, self.device = target.logits_dtype, target.device
        width, heads = self.hidden_size, self.kv_heads * self.head_dim

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=made).to(self.dtype) / shape[-1] ** 0.5

        self.join = random(width, (1 + features) * width)
        self.again = random(width, 2 * width)
        self.qkv = random(max(layers, 1), 3 * heads, width)
        self.out = random(max(layers, 1), width, heads)
        self.steps = random(stages, width, width)

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """See `CausalModel.new_cache`."""
        return KVCache.empty(
            batch=batch, capacity=capacity, num_layers=self.num_layers, queries=queries,
            num_kv_heads=self.kv_heads, head_dim=self.head_dim, dtype=self.dtype,
            device=self.device,
        )  # fmt: skip

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """States that come with the requests, `[B, F]`."""
        lengths = torch.tensor([float(len(request.prompt_tokens)) for request in requests])
        return lengths[:, None].to(self.dtype).expand(-1, self.hidden_size) / 10.0

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor,
    ) -> Tensor:
        """What enters the first layer, of tokens and the states above them; 0 where none is."""
        embedded = self.target.family.embed(tokens, positions.clamp(min=0))
        if features is None or known is None:
            return embedded
        features = features.masked_fill(~known[:, :, None], 0.0)
        own = features.shape[2] == self.hidden_size and bool((steps > 0).any())
        weights = self.again if own else self.join
        return torch.tanh(functional.linear(torch.cat([embedded, features], 2), weights))

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor,
        cache: KVCache,
        layers: tuple[int, int],
        features: Tensor,
        skips: object = None,
        latest: Tensor | None = None,
    ) -> Tensor:
        """See `CausalModel.hidden`; `features` is what `enter` gave."""
        writer, state = cache.writer(positions, slots, mask.shape[2]), features
        turned = torch.sin(positions[:, :, None].to(state.dtype) * 0.3)
        for layer in range(*layers):
            given = functional.linear(state + turned, self.qkv[layer])
            q, k, v = (
                part.unflatten(2, (self.kv_heads, self.head_dim)).transpose(1, 2)
                for part in given.chunk(3, 2)
            )
            keys, values = writer.update(k, v, layer)
            mixed = functional.scaled_dot_product_attention(q, keys, values, mask[:, None])
            mixed = mixed.nan_to_num().transpose(1, 2).flatten(2)
            state = state + functional.linear(mixed, self.out[layer])
        return state

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None) -> Tensor:
        """Rows of the target's vocabulary, or of a score."""
        if name == "score":
            return torch.sigmoid(hidden.mean(2, keepdim=True))
        stage = torch.zeros_like(hidden[:, :, 0], dtype=torch.int64) if steps is None else steps
        if name.startswith("head."):
            stage = torch.full_like(stage, int(name.removeprefix("head.")) - 1)
        weights = self.steps[stage % self.stages]
        return self.target.logits(hidden + torch.einsum("btij,btj->bti", weights, hidden))
