"""Rows of texts, and attention along them that never compares what is far apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Texts:
    """Rows of tokens, of one text or several.

    Attributes:
        tokens: int64 `[B, T]`.
        numbers: int64 `[B, T]`, which text of its row a token is of.
        positions: int64 `[B, T]`, of a token in its text.
    """

    tokens: Tensor
    numbers: Tensor
    positions: Tensor

    @classmethod
    def alone(cls, tokens: Tensor) -> Texts:
        """One text in a row."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        return cls(tokens, torch.zeros_like(tokens), place.expand_as(tokens))

    def causal(self) -> Tensor:
        """Which tokens each follows in its own text, itself among them; bool `[B, T, T]`."""
        same = self.numbers[:, :, None] == self.numbers[:, None]
        return same & (self.positions[:, :, None] >= self.positions[:, None])


@dataclass(frozen=True)
class TextAndOwn:
    """Attention of roots to the first step of their texts, and to their own further steps.

    Scores of a root's own steps are sums of products row by row, so that no root's keys meet
    another's: R roots of T tokens cost R (T + steps) and not R (T + R steps).

    Attributes:
        text: additive, as made by `additive_mask`, `[B, 1, H / H_kv * R, T]`.
        near: of the root's own steps so far, how many of the last ones a sliding window shows.
    """

    text: Tensor
    near: int | None = None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See `specplan.runtime.models.attention.OwnAttention`."""
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        batch, heads, roots, width = query.shape
        kv_heads, length = key.shape[1], self.text.shape[-1]
        grouped = query.reshape(batch, kv_heads, -1, width)
        (keys, own_keys), (values, own_values) = (
            (x[:, :, :length], x[:, :, length:].unflatten(2, (-1, roots)).unsqueeze(2))
            for x in (key, value)
        )
        if self.near is not None:
            own_keys, own_values = (x[:, :, :, -self.near :] for x in (own_keys, own_values))
        own = (query.reshape(batch, kv_heads, -1, 1, roots, width) * own_keys).sum(-1)
        exact = torch.promote_types(query.dtype, torch.float32)
        scores = (grouped @ keys.transpose(2, 3)).to(exact) * scale + self.text
        own = own.transpose(3, 4).flatten(2, 3).to(exact) * scale
        shares = torch.cat([scores, own], -1).softmax(-1).to(value.dtype)
        from_own = shares[..., length:].unflatten(2, (-1, roots)).transpose(3, 4)[..., None]
        mixed = (from_own * own_values).sum(3).flatten(2, 3) + shares[..., :length] @ values
        joined: Tensor = mixed.reshape(batch, heads, roots, width).transpose(1, 2)
        return joined


@dataclass(frozen=True)
class TextAndBlock:
    """Attention of blocks of slots to the text before their roots, and to themselves.

    Text stands first and attends to nothing, since it does not change; slots follow level by level.

    Attributes:
        text: additive, as made by `additive_mask`, `[B, 1, H / H_kv * R * slots, T]`.
        slots: of a block, the root among them.
        own: which slots each sees of its block, bool `[slots, slots]`; all when None.
    """

    text: Tensor
    slots: int
    own: Tensor | None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See `specplan.runtime.models.attention.OwnAttention`."""
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        batch, heads, _, width = query.shape
        kv_heads, length = key.shape[1], self.text.shape[-1]
        shape = (batch, kv_heads, heads // kv_heads, self.slots, -1, width)
        query = query[:, :, length:]
        (keys, own_keys), (values, own_values) = (
            (x[:, :, :length], x[:, :, length:].unflatten(2, (self.slots, -1)))
            for x in (key, value)
        )
        exact = torch.promote_types(query.dtype, torch.float32)
        grouped = query.reshape(batch, kv_heads, -1, width)
        scores = (grouped @ keys.transpose(2, 3)).to(exact) * scale + self.text
        own = torch.einsum("bhgsrd,bhtrd->bhgsrt", query.reshape(shape), own_keys).to(exact) * scale
        if self.own is not None:
            own = own.masked_fill(~self.own[:, None], torch.finfo(exact).min)
        shares = torch.cat([scores, own.flatten(2, 4)], -1).softmax(-1).to(value.dtype)
        inside = shares[..., length:].reshape(own.shape)
        mixed = torch.einsum("bhgsrt,bhtrd->bhgsrd", inside, own_values).flatten(2, 4)
        mixed = (mixed + shares[..., :length] @ values).reshape(batch, heads, -1, width)
        whole = torch.cat([mixed.new_zeros(batch, heads, length, width), mixed], 2)
        return whole.transpose(1, 2)


class Unrolled:
    """Keys and values of all steps so far, side by side, which gradients go through.

    Attributes:
        parts: keys and values by layer, `[B, H_kv, U, head_dim]`: those of the first step at every
            token, then those of each further step at every root.
    """

    def __init__(self) -> None:
        self.parts: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Those of a layer `[B, H_kv, T, head_dim]`, behind those of earlier steps."""
        if layer_idx in self.parts:
            before = self.parts[layer_idx]
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        self.parts[layer_idx] = keys, values
        return keys, values
