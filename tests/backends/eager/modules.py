"""Small random modules that read hidden states of a target, one class for every plan's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request


class Module:
    """A drafter, judge or sentence model: token and feature are joined, layers run, rows follow.

    Args:
        target: whose embeddings, width and head it takes over.
        layers: attention layers of its own.
        features: states of the target that it reads at once, at most.
        stages: steps, heads or slots with weights of their own.
        by_slots: it looks ahead by slots.
        optional: it runs where a state is missing, too.
    """

    kv_heads, head_dim, slots_enter, slots_first = 2, 4, 0, False

    def __init__(
        self,
        target: CausalModel,
        *,
        layers: int = 0,
        features: int = 3,
        stages: int = 8,
        by_slots: bool = False,
        optional: bool = False,
    ) -> None:
        made = torch.Generator().manual_seed(1)
        self.by_slots, self.optional_features, self.tokens_read = by_slots, optional, 1
        self.target, self.num_layers, self.stages = target, layers, stages
        self.vocab_size, self.max_positions = target.vocab_size, target.max_positions
        self.hidden_size, self.dtype = target.hidden_size, target.dtype
        self.cache_dtype = target.dtype
        self.logits_dtype, self.device = target.logits_dtype, target.device
        width, heads = self.hidden_size, self.kv_heads * self.head_dim

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=made).to(self.dtype) / shape[-1] ** 0.5

        self.join = random(width, (1 + features) * width)
        self.again = random(width, 2 * width)
        self.slots = random(stages, width) * width**0.5
        self.qkv = random(max(layers, 1), 3 * heads, width)
        self.out = random(max(layers, 1), width, heads)
        self.steps = random(stages, width, width)

    def weights(self) -> dict[str, Tensor]:
        """See `CausalModel.weights`."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return own | {f"target.{name}": value for name, value in self.target.weights().items()}

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

    def images_of(self, requests: Sequence[Request]) -> None:
        """See `Module.images_of`: it reads states."""

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
        if features.shape[2] == self.hidden_size:
            given = torch.cat([embedded, features], 2)
            matrices = self.join[:, : given.shape[2]], self.again
            first, later = (functional.linear(given, one) for one in matrices)
            joined = torch.where((steps > 0)[:, :, None], later, first)
        else:
            given = torch.cat([embedded, features], 2)
            joined = functional.linear(given, self.join[:, : given.shape[2]])
        return torch.where(known[:, :, None], torch.tanh(joined), embedded)

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """A trained embedding."""
        return self.slots[level].expand_as(states)

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
        ahead: int = 0,
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

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None, level: int = 0) -> Tensor:
        """Rows of the target's vocabulary, or of a score."""
        if name == "score":
            return torch.sigmoid(hidden.mean(2, keepdim=True))
        stage = torch.zeros_like(hidden[:, :, 0], dtype=torch.int64) if steps is None else steps
        stage = stage + level
        weights = self.steps[stage % self.stages]
        return self.target.logits(hidden + torch.einsum("btij,btj->bti", weights, hidden))


class Probed(CausalModel):
    """A target with trained embeddings for slots, by which it looks ahead.

    Args:
        target: what runs.
        enters: the layer at which slots enter; in mid-stack they are made of the node's state.
    """

    def __init__(self, target: CausalModel, enters: int = 0) -> None:
        vars(self).update(vars(target))
        self.by_slots = True
        made = torch.Generator().manual_seed(2)
        self.slots_enter, width = enters, target.hidden_size
        self.slots = torch.randn(16, width, generator=made).to(target.dtype)
        self.moved = torch.randn(16, width, width, generator=made).to(target.dtype) / width**0.5

    def enter(self, *inputs: Any) -> None:
        """The tokens' embeddings, whatever is read."""

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """A trained embedding; in mid-stack, what becomes of the node's state."""
        if self.slots_enter:
            return functional.linear(states, self.moved[level])
        return self.slots[level].expand_as(states)
