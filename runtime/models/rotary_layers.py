"""Decoder layers of the Llama family with fused projections: the hot path at batch 1.

`transformers` supplies configuration, weights and rotary frequencies; these layers compute the
same function with far fewer kernel launches: q, k, v in one product, gate and up in one, one
rotation for queries and keys, sums in place. Parity with the stock layers is tested for every
supported family.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.attention import LayerMask, RowMask, grouped_attention
from specplan.runtime.models.kv_cache import CacheWriter
from specplan.runtime.models.quantized import (
    Matrix,
    linear,
    matrix_of,
    quantize,
    stacked,
)


class RotaryLayer:
    """One pre-norm decoder layer: RMSNorm, rotary grouped attention, RMSNorm, gated MLP.

    Args:
        layer: a decoder layer of Llama, Mistral, Qwen2 or Qwen3 from `transformers`, or one of a
            head, which may lack the first norm; its weights are taken over.
        index: number of the layer, from 0.
        shared: its projections go on, as views of the joined matrices; else they are emptied.
    """

    def __init__(self, layer: Any, index: int, *, shared: bool = False) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.index = index
        self.head_dim: int = attention.head_dim
        self.kv_heads: int = matrix_of(attention.k_proj).shape[0] // self.head_dim
        self.heads: int = matrix_of(attention.q_proj).shape[0] // self.head_dim
        self.scaling: float = attention.scaling
        self.input_norm = norm_of(getattr(layer, "input_layernorm", None))
        self.middle_norm = norm_of(layer.post_attention_layernorm)
        self.query_norm = norm_of(getattr(attention, "q_norm", None))
        self.key_norm = norm_of(getattr(attention, "k_norm", None))
        self.qkv: Matrix
        self.gate_up: Matrix
        self.qkv, self.qkv_bias = _join(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate_up, self.gate_up_bias = _join(mlp.gate_proj, mlp.up_proj)
        self.output: Matrix = matrix_of(attention.o_proj)
        self.output_bias = attention.o_proj.bias
        self.down: Matrix = matrix_of(mlp.down_proj)
        self.down_bias = mlp.down_proj.bias
        silu = type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        self.activation = functional.silu if silu else mlp.act_fn  # a module's call takes longer
        for joined, projections in (
            (self.qkv, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (self.gate_up, (mlp.gate_proj, mlp.up_proj)),
        ):
            first = 0
            for one in projections:
                if not shared:
                    one.weight = one.bias = None
                elif isinstance(joined, Tensor):
                    one.weight.data = joined[first : first + len(one.weight)]
                    first += len(one.weight)

    def __call__(
        self,
        hidden: Tensor,
        mask: LayerMask,
        cos: Tensor,
        sin: Tensor,
        writer: CacheWriter,
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """Apply the layer.

        Args:
            hidden: `[B * T, hidden]`; changed in place, unless gradients are to pass.
            mask: see `grouped_attention`.
            cos: `[B, T, 1, head_dim]`.
            sin: `[B, T, 1, head_dim]`, its first half negated.
            writer: where keys and values go and come from.
            skips: blocks of the stack that are left out.

        Returns:
            `[B * T, hidden]`.
        """
        if self.index not in skips.attentions:
            normed = rms_norm(hidden, self.input_norm)
            hidden = self._attend(normed, hidden, mask, cos, sin, writer)
        if self.index not in skips.mlps:
            hidden = self._feed(hidden)
        return hidden

    def behind_norm(
        self,
        given: Tensor,
        residual: Tensor,
        mask: LayerMask,
        cos: Tensor,
        sin: Tensor,
        writer: CacheWriter,
    ) -> Tensor:
        """Apply the layer behind its first norm.

        Args:
            given: what the attention reads, `[B, T, width]`; not necessarily as wide as states.
            residual: what its output is added to, `[B, T, hidden]`.
            mask: see `__call__`, as for the others.
            cos: see `__call__`.
            sin: see `__call__`.
            writer: see `__call__`.

        Returns:
            `[B, T, hidden]`.
        """
        hidden = residual.flatten(0, 1).clone()
        hidden = self._attend(given.flatten(0, 1), hidden, mask, cos, sin, writer)
        return self._feed(hidden).view(residual.shape)

    def fill(self, given: Tensor, cos: Tensor, sin: Tensor, writer: CacheWriter) -> None:
        """Write keys and values alone; arguments as of `behind_norm`."""
        joined = linear(given, self.qkv, self.qkv_bias)
        self._stored(self._by_head(joined, cos), cos, sin, writer)

    def stored(self) -> dict[str, Tensor]:
        """Its tensors by their names in a checkpoint's layer, joined ones as views of their rows.

        What is written there is what the layer computes with.
        """
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        parts: dict[str, Tensor] = {}
        for joined, names, rows in (
            ("qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
             (width, kv_width, kv_width)),
            ("gate_up", ("mlp.gate_proj", "mlp.up_proj"), len(self.gate_up) // 2),
            ("output", ("self_attn.o_proj",), len(self.output)),
            ("down", ("mlp.down_proj",), len(self.down)),
        ):  # fmt: skip
            for attribute, kind in ((joined, "weight"), (f"{joined}_bias", "bias")):
                tensor = getattr(self, attribute)
                split = () if tensor is None else tensor.split(rows)
                parts |= {f"{name}.{kind}": one for name, one in zip(names, split, strict=False)}
        norms = {
            "input_layernorm": self.input_norm, "post_attention_layernorm": self.middle_norm,
            "self_attn.q_norm": self.query_norm, "self_attn.k_norm": self.key_norm,
        }  # fmt: skip
        return parts | {f"{name}.weight": norm[1] for name, norm in norms.items() if norm}

    def quantize(self, form: str) -> None:
        """Round the layer's matrices to a format; see `quantized.quantize`."""
        for name in ("qkv", "output", "gate_up", "down"):
            setattr(self, name, quantize(getattr(self, name).detach(), form))

    def _attend(
        self,
        given: Tensor,
        hidden: Tensor,
        mask: LayerMask,
        cos: Tensor,
        sin: Tensor,
        writer: CacheWriter,
    ) -> Tensor:
        """Hidden states with the attention's output added; see `add_linear`."""
        mixed = self._attention(given, mask, cos, sin, writer)
        hidden = add_linear(hidden, mixed, self.output, self.output_bias)
        return self._added(hidden, mixed, "output", writer, cos.shape[0])

    def _feed(self, hidden: Tensor) -> Tensor:
        """Hidden states with the MLP's output added; see `add_linear`."""
        normed = rms_norm(hidden, self.middle_norm)
        gate, up = linear(normed, self.gate_up, self.gate_up_bias).chunk(2, dim=-1)
        return add_linear(hidden, self.activation(gate).mul_(up), self.down, self.down_bias)

    def _attention(
        self, normed: Tensor, mask: LayerMask, cos: Tensor, sin: Tensor, writer: CacheWriter
    ) -> Tensor:
        batch, tokens = cos.shape[:2]
        joined = linear(normed, self.qkv, self.qkv_bias)
        joined = self._added(joined, normed, "qkv", writer, batch)
        if isinstance(mask, RowMask):
            joined = joined.view(batch, tokens, joined.shape[1])
            mixed = mask.attend(joined, mask.bias, self.index, self.scaling)
            return mixed.view(batch * tokens, mixed.shape[2])
        query, key, value = self._stored(self._by_head(joined, cos), cos, sin, writer)
        writer.note(query, self.index)
        if writer.additions is not None:
            key, value, mask = writer.additions.seen(query, key, value, mask, self.index)
        mixed, _ = grouped_attention(None, query, key, value, mask, self.scaling)
        return mixed.reshape(batch * tokens, self.heads * self.head_dim)

    def _added(
        self, made: Tensor, given: Tensor, part: str, writer: CacheWriter, rows: int
    ) -> Tensor:
        """What a projection made, and what the pass adds to it."""
        if writer.additions is None:
            return made
        return writer.additions.added(made, given, self.index, part, rows)

    def _by_head(self, joined: Tensor, cos: Tensor) -> Tensor:
        """Queries, keys and values `[B, T, H + 2 H_kv, head_dim]`."""
        return joined.view(*cos.shape[:2], self.heads + 2 * self.kv_heads, self.head_dim)

    def _stored(
        self, joined: Tensor, cos: Tensor, sin: Tensor, writer: CacheWriter
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turned queries, and the keys and values to attend to, new ones among them."""
        heads, kv_heads = self.heads, self.kv_heads
        if self.query_norm is None:
            if writer.rotate_and_store is not None:
                return writer.rotate_and_store(joined, cos, sin, self.index)
            turned = rotate(joined[:, :, : heads + kv_heads], cos, sin)
        else:
            query, key = joined[:, :, :heads], joined[:, :, heads : heads + kv_heads]
            parts = (rms_norm(query, self.query_norm), rms_norm(key, self.key_norm))
            turned = rotate(torch.cat(parts, dim=2), cos, sin)
        key, value = writer.update(
            turned[:, :, heads:].transpose(1, 2),
            joined[:, :, heads + kv_heads :].transpose(1, 2),
            self.index,
        )
        return turned[:, :, :heads].transpose(1, 2), key, value


Norm = tuple[tuple[int], Tensor, float]


def norm_of(module: Any) -> Any:
    """What `rms_norm` needs of a stock RMSNorm module; None for None."""
    if module is None:
        return None
    return (tuple(module.weight.shape), module.weight, float(module.variance_epsilon))


def rms_norm(hidden: Tensor, norm: Norm) -> Tensor:
    """Root mean square norm (arXiv 1910.07467) over the last dimension."""
    shape, weight, epsilon = norm
    return torch.rms_norm(hidden, shape, weight, epsilon)


def for_rotation(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Angles as `rotate` takes them, from those of `transformers`, `[B, T, head_dim]` each."""
    sin = sin[:, :, None].clone()
    sin[..., : sin.shape[-1] // 2].neg_()
    return cos[:, :, None], sin


def add_linear(hidden: Tensor, inputs: Tensor, weight: Matrix, bias: Tensor | None) -> Tensor:
    """Add a projection to hidden states `[N, hidden]`, in place; in one launch on a GPU.

    States that gradients pass through are needed as they were, and stay so.
    """
    if hidden.requires_grad:
        return hidden + linear(inputs, weight, bias)
    if hidden.is_cuda and bias is None and isinstance(weight, Tensor):
        hidden.addmm_(inputs, weight.t())
    else:
        hidden += linear(inputs, weight, bias)
    return hidden


def rotate(heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotary embedding (RoFormer, arXiv 2104.09864) of `[B, T, heads, head_dim]`."""
    first, second = heads.chunk(2, dim=-1)
    return torch.addcmul(heads * cos, torch.cat((second, first), dim=-1), signed_sin)


def _join(*projections: Any) -> tuple[Matrix, Tensor | None]:
    weight = stacked([*map(matrix_of, projections)])
    if projections[0].bias is None:
        return weight, None
    return weight, torch.cat([projection.bias for projection in projections])
