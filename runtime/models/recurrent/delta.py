"""Qwen3-Next: layers of gated linear attention between layers of gated attention.

Yang et al. 2024, "Gated Delta Networks", arXiv 2412.06464, equation 10: the state of a head follows
S = a S + k (b (v - (a S)^T k))^T, and its output is S^T q; q, k and v pass a causal convolution
before. Stock modules give projections, norms, attention and MLPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specplan.runtime.models.kv_cache import CacheWriter
from specplan.runtime.models.recurrent.hybrid import Attend, HybridFamily
from specplan.runtime.models.recurrent.mamba import convolved
from specplan.runtime.models.recurrent.states import Shapes, recurrent

NORM_EPSILON = 1e-6
"""Of the L2 norms of queries and keys, as in the stock module."""


class DeltaMixer:
    """The recurrence of a stock gated delta net, token by token.

    Attributes:
        shapes: of the last inputs of the convolution and of the state.
    """

    def __init__(self, stock: Any) -> None:
        self.stock, self.layer = stock, stock.layer_idx
        self.heads, self.key_heads = stock.num_v_heads, stock.num_k_heads
        self.key_dim, self.value_dim = stock.head_k_dim, stock.head_v_dim
        self.widths = [stock.key_dim, stock.key_dim, stock.value_dim]
        self.shapes: Shapes = (
            (stock.conv_dim, stock.conv_kernel_size - 1),
            (self.heads, self.key_dim, self.value_dim),
        )

    def __call__(self, hidden: Tensor, writer: CacheWriter) -> Tensor:
        """Outputs `[B, T, hidden]`; the states that the tokens leave go to the writer's cache."""
        stock = self.stock
        projected = stock.in_proj_qkvz(hidden), stock.in_proj_ba(hidden)
        query, key, value, gate, rate, decay = stock.fix_query_key_value_ordering(*projected)
        inputs = torch.cat([*(one.flatten(2) for one in (query, key, value)), rate, decay], -1)
        mixed = recurrent(writer, self.layer).recur(self.layer, inputs, self._step)
        mixed = mixed.to(hidden.dtype).view(-1, self.value_dim)
        normed = stock.norm(mixed, gate.reshape(-1, self.value_dim))
        return stock.out_proj(normed.view(*hidden.shape[:2], -1))  # type: ignore[no-any-return]

    def _step(self, inputs: Tensor, states: list[Tensor]) -> Tensor:
        """One token: `[B, conv_dim + 2 heads]` to `[B, value_dim]`."""
        stock, (window, state) = self.stock, states
        entering, rate, interval = inputs.split([sum(self.widths), self.heads, self.heads], -1)
        mixed = functional.silu(convolved(stock.conv1d, window, entering)).to(state.dtype)
        query, key, value = mixed.split(self.widths, -1)
        query, key = (self._by_head(one) for one in (query, key))
        value = value.unflatten(1, (self.heads, self.value_dim))
        interval = functional.softplus(interval.to(state.dtype) + stock.dt_bias)
        decay = torch.exp(-interval * torch.exp(stock.A_log.to(state.dtype)))
        state.mul_(decay[:, :, None, None])
        recalled = (state * key[..., None]).sum(2)
        change = (value - recalled) * rate.to(state.dtype).sigmoid()[..., None]
        state.add_(key[..., None] * change[:, :, None])
        output: Tensor = (state * (query / self.key_dim**0.5)[..., None]).sum(2)
        return output.flatten(1)

    def _by_head(self, rows: Tensor) -> Tensor:
        """Queries or keys with an L2 norm of 1, for each head of values, `[B, heads, key_dim]`."""
        heads: Tensor = rows.unflatten(1, (self.key_heads, self.key_dim))
        heads = heads * torch.rsqrt((heads * heads).sum(-1, keepdim=True) + NORM_EPSILON)
        return heads.repeat_interleave(self.heads // self.key_heads, 1)


class Qwen3NextFamily(HybridFamily):
    """Qwen3-Next."""

    def __init__(self, model: Any) -> None:
        if model.dtype == torch.float64:  # no grouped product of torch takes it
            model.set_experts_implementation("eager")
        super().__init__(model)
        self.mixers = {
            index: DeltaMixer(layer.linear_attn)
            for index, layer in enumerate(self.layers)
            if layer.block_type == "linear_attention"
        }
        self.keyless = frozenset(self.mixers)
        places = range(len(self.layers))
        self.states: Sequence[Shapes] = [
            self.mixers[i].shapes if i in self.mixers else () for i in places
        ]
        self.head_dim: int = model.config.head_dim

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        return self.inner.embed_tokens(tokens)  # type: ignore[no-any-return]

    def mixed(self, index: int, hidden: Tensor, attend: Attend, writer: CacheWriter) -> Tensor:
        """See `HybridFamily.mixed`."""
        layer = self.layers[index]
        given = layer.input_layernorm(hidden)
        if index in self.mixers:
            return self.mixers[index](given, writer)
        return attend(layer, given)

    def mlp(self, index: int, hidden: Tensor) -> Tensor:
        """See `HybridFamily.mlp`."""
        layer = self.layers[index]
        return layer.mlp(layer.post_attention_layernorm(hidden))  # type: ignore[no-any-return]

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`."""
        return self.inner.norm(hidden)  # type: ignore[no-any-return]
