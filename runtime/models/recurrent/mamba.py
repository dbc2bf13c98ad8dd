"""Mamba-2 and Falcon-H1, whose mixers have the same recurrence.

Dao and Gu 2024, "Transformers are SSMs", arXiv 2405.21060, equation 1 with a scalar decay: the
state of a head follows h = exp(dt A) h + dt B x, and its output is C h + D x; x, B and C pass a
causal convolution before. Stock modules give projections, norms and attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.families import LayerMasks
from specplan.runtime.models.kv_cache import CacheWriter
from specplan.runtime.models.recurrent.hybrid import Attend, HybridFamily
from specplan.runtime.models.recurrent.states import Shapes, recurrent


class Mixer:
    """The recurrence of a stock Mamba-2 mixer, token by token.

    Attributes:
        shapes: of the last inputs of the convolution and of the state.
    """

    def __init__(self, stock: Any) -> None:
        self.stock, self.layer = stock, stock.layer_idx
        self.groups, self.heads, self.head_dim = stock.n_groups, stock.num_heads, stock.head_dim
        self.inner, self.state_size = stock.intermediate_size, stock.ssm_state_size
        self.shapes: Shapes = (
            (stock.conv_dim, stock.conv_kernel_size - 1),
            (self.heads, self.head_dim, self.state_size),
        )
        self.into = getattr(stock, "ssm_in_multiplier", 1.0)
        self.scale = getattr(stock, "mup_vector", None)
        self.gated_norm = getattr(stock, "mamba_rms_norm", True)

    def __call__(self, hidden: Tensor, writer: CacheWriter) -> Tensor:
        """Outputs `[B, T, hidden]`; the states that the tokens leave go to the writer's cache."""
        stock = self.stock
        projected = stock.in_proj(hidden * self.into)
        if self.scale is not None:
            projected = projected * self.scale
        gate, inputs = projected.split([self.inner, projected.shape[2] - self.inner], -1)
        mixed = recurrent(writer, self.layer).recur(self.layer, inputs, self._step)
        mixed = stock.norm(mixed, gate) if self.gated_norm else mixed * functional.silu(gate)
        return stock.out_proj(mixed.to(hidden.dtype))  # type: ignore[no-any-return]

    def _step(self, inputs: Tensor, states: list[Tensor]) -> Tensor:
        """One token: `[B, conv_dim + heads]` to `[B, inner]`."""
        stock, (window, state) = self.stock, states
        entering, interval = inputs.split([inputs.shape[1] - self.heads, self.heads], -1)
        mixed = convolved(stock.conv1d, window, entering)
        sizes = [self.inner, *[self.groups * self.state_size] * 2]
        x, enters, leaves = functional.silu(mixed).to(state.dtype).split(sizes, -1)
        x = x.unflatten(1, (self.heads, self.head_dim))
        enters, leaves = (self._by_head(one) for one in (enters, leaves))
        interval = functional.softplus(interval + stock.dt_bias).to(state.dtype)
        interval = interval.clamp(*stock.time_step_limit)
        decay = torch.exp(-interval * torch.exp(stock.A_log.to(state.dtype)))
        state.mul_(decay[:, :, None, None])
        state.add_((interval[:, :, None] * x)[..., None] * enters[:, :, None])
        output: Tensor = (state * leaves[:, :, None]).sum(3) + stock.D.to(state.dtype)[:, None] * x
        return output.flatten(1)

    def _by_head(self, rows: Tensor) -> Tensor:
        """What heads of a group share, `[B, groups * N]`, for each head, `[B, heads, N]`."""
        groups: Tensor = rows.unflatten(1, (self.groups, -1))
        return groups.repeat_interleave(self.heads // self.groups, 1)


def convolved(convolution: Any, window: Tensor, entering: Tensor) -> Tensor:
    """One token through a causal convolution, a filter for each of C channels.

    Args:
        convolution: the stock module.
        window: inputs of the tokens before it, `[B, C, taps - 1]`; moves on by one token.
        entering: its own, `[B, C]`.

    Returns:
        `[B, C]`.
    """
    line = torch.cat([window, entering[:, :, None].to(window.dtype)], 2)
    window.copy_(line[:, :, 1:])
    mixed: Tensor = (line.to(entering.dtype) * convolution.weight.squeeze(1)).sum(2)
    return mixed if convolution.bias is None else mixed + convolution.bias


class Mamba2Family:
    """Mamba-2: nothing but mixers, and no attention."""

    packs = False
    heads = kv_heads = head_dim = 1

    def __init__(self, model: Any) -> None:
        inner = model.backbone
        self.inner, self.layers = inner, list(inner.layers)
        self.keyless = frozenset(range(len(self.layers)))
        self.mixers = [Mixer(layer.mixer) for layer in self.layers]
        self.states: Sequence[Shapes] = [mixer.shapes for mixer in self.mixers]
        self.windows: tuple[int | None, ...] = (None,) * len(self.layers)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        return self.inner.embeddings(tokens)  # type: ignore[no-any-return]

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: CacheWriter,
        layers: tuple[int, int],
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """See `Family.run`; a mixer counts as the attention of its layer."""
        for index in range(*layers):
            if index not in skips.attentions:
                block = self.layers[index]
                given = block.norm(hidden.to(block.norm.weight.dtype))
                residual = (
                    hidden.float()
                    if block.residual_in_fp32 and hidden.dtype.itemsize < 4
                    else hidden
                )
                hidden = residual + self.mixers[index](given, writer)
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`."""
        normed: Tensor = self.inner.norm_f(hidden)
        return normed.to(self.inner.embeddings.weight.dtype)


class FalconH1Family(HybridFamily):
    """Falcon-H1: in every layer a mixer beside attention, then a gated MLP."""

    keyless: frozenset[int] = frozenset()

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.mixers = [Mixer(layer.mamba) for layer in self.layers]
        self.states: Sequence[Shapes] = [mixer.shapes for mixer in self.mixers]
        self.head_dim: int = self.layers[0].self_attn.head_dim
        self.into: float = self.inner.embedding_multiplier
        self.out: float = self.inner.lm_head_multiplier

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        embedded: Tensor = self.inner.embed_tokens(tokens)
        return embedded * self.into

    def mixed(self, index: int, hidden: Tensor, attend: Attend, writer: CacheWriter) -> Tensor:
        """See `HybridFamily.mixed`; mixer and attention of a layer are one block."""
        layer = self.layers[index]
        given = layer.input_layernorm(hidden)
        mixed: Tensor = self.mixers[index](given, writer) * layer.ssm_out_multiplier
        attended = attend(layer, given * layer.attention_in_multiplier)
        added: Tensor = mixed + attended * layer.attn_out_multiplier
        return added

    def mlp(self, index: int, hidden: Tensor) -> Tensor:
        """See `HybridFamily.mlp`."""
        layer = self.layers[index]
        return layer.feed_forward(layer.pre_ff_layernorm(hidden))  # type: ignore[no-any-return]

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`; the head's factor is applied to its input."""
        normed: Tensor = self.inner.final_layernorm(hidden)
        return normed * self.out
