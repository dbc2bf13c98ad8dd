"""The one attention function: explicit additive masks, keys of the used slots, grouped heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from specplan.ir.errors import MissingCapabilityError

ATTENTION_NAME = "specplan_grouped"


@dataclass(frozen=True)
class PrefixMask:
    """An attention mask for a kernel that reads whole caches: a prefix, and slots after it.

    Attributes:
        prefix: int64 `[B]`: every query sees the slots below it; negative where a text is shorter
            than the columns of a pass.
        seen: bool `[B or 1, T, W]`, whether query t sees slot prefix + w; slots beyond see none.
        attend: from queries `[B, H, T, D]`, keys and values `[B, H_kv, S, D]`, `prefix`, `seen` and
            the factor of the scores to `[B, H, T, D]`.
    """

    prefix: Tensor
    seen: Tensor
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class RowMask:
    """A mask of columns in neighbouring slots, for an op that rotates, stores and attends.

    Attributes:
        seen: bool `[B, T, U]`, the slots that each column sees, none behind its own; None where it
            sees all up to its own.
        attend: from queries, keys and values of a layer side by side, `[B, T, (H + 2 H_kv) D]`, the
            additive form of `seen`, `[B, 1, T, U]` or None, the layer's number and the factor of
            the scores to `[B, T, H D]`.
        slots: those attended to, int64 `[U]`: 0, 1, and so on.
        bias: what `attend` gets.
    """

    seen: Tensor | None
    attend: Callable[[Tensor, Tensor | None, int, float], Tensor]
    slots: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Packing:
    """Columns of a pass that run one after another: a padded pass without its padding.

    Attributes:
        shape: rows and columns of the padded pass, B and T.
        columns: int64 `[N]`, rising, which of the B * T columns run, counted row by row.
        groups: rows with as many columns each, and where their columns stand in `columns`, row by
            row; neighbours share one call of attention.
    """

    shape: tuple[int, int]
    columns: Tensor
    groups: tuple[tuple[range, Tensor], ...]

    @classmethod
    def of(cls, live: Sequence[Sequence[int]], width: int, device: torch.device) -> Packing:
        """Those of the `width` columns of each row that run, rising."""
        columns = [row * width + column for row, mine in enumerate(live) for column in mine]
        groups: list[tuple[range, Tensor]] = []
        start = row = 0
        for count, run in groupby(map(len, live)):
            rows = range(row, row + len(list(run)))
            stop = start + count * len(rows)
            if count:
                groups.append((rows, torch.arange(start, stop, device=device)))
            start, row = stop, rows.stop
        return cls((row, width), torch.tensor(columns, device=device), tuple(groups))

    def of_columns(self, padded: Tensor) -> Tensor:
        """The columns of `[B, T, ...]` that run, `[1, N, ...]`."""
        return padded.flatten(0, 1)[self.columns][None]

    def padded(self, packed: Tensor) -> Tensor:
        """`[1, N, F]` back in `[B, T, F]`, zeros elsewhere."""
        padded = packed.new_zeros(self.shape[0] * self.shape[1], packed.shape[2])
        padded[self.columns] = packed[0]
        return padded.view(*self.shape, -1)

    def mask(self, allowed: Tensor, groups: int, dtype: torch.dtype) -> PackedMask:
        """Additive masks from a boolean one `[B, T, U]`; see `additive_mask`."""
        flat, masks = allowed.flatten(0, 1), []
        for rows, places in self.groups:
            own = flat[self.columns[places]].unflatten(0, (len(rows), -1))
            masks.append(additive_mask(own, groups, dtype))
        return PackedMask(self, tuple(masks))


@dataclass(frozen=True)
class PackedMask:
    """The mask of packed columns: an additive one for each group.

    Attributes:
        packing: which columns run.
        masks: `[rows, 1, (H / H_kv) columns, U]` of each group.
    """

    packing: Packing
    masks: tuple[Tensor, ...]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Attention of queries `[1, H, N, D]` to the caches of their rows, `[1, N, H, D]`."""
        mixed = torch.empty_like(query.transpose(1, 2))
        for (rows, places), mask in zip(self.packing.groups, self.masks, strict=True):
            own = query[0, :, places].unflatten(1, (len(rows), -1)).transpose(0, 1)
            theirs = slice(rows.start, rows.stop)
            given, _ = grouped_attention(None, own, key[theirs], value[theirs], mask, scaling)
            mixed[0, places] = given.flatten(0, 1)
        return mixed


class Additions(Protocol):
    """What some columns of a pass have of rotary layers that the others have not."""

    def added(self, made: Tensor, given: Tensor, layer: int, part: str, rows: int) -> Tensor:
        """Outputs of a projection, and what is added to them.

        Args:
            made: outputs, `[rows * T, F]`.
            given: inputs, `[rows * T, G]`.
            layer: its number.
            part: `qkv`, of queries, keys and values, or `output`, behind the attention.
            rows: of the batch.
        """
        ...

    def seen(
        self, query: Tensor, key: Tensor, value: Tensor, mask: LayerMask, layer: int
    ) -> tuple[Tensor, Tensor, LayerMask]:
        """Keys, values and mask of `grouped_attention`, with those that such columns see."""
        ...


class OwnAttention(Protocol):
    """A mask that computes the attention itself."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """From queries `[B, H, T, D]`, keys and values `[B, H_kv, U, D]` to `[B, T, H, D]`."""
        ...


AttentionMask: TypeAlias = Tensor | PrefixMask | RowMask
"""The mask of layers: additive, as made by `additive_mask`, or for a kernel."""
LayerMask: TypeAlias = AttentionMask | PackedMask | OwnAttention
"""The same, or of packed columns, or one that attends by itself."""


def always(mask: LayerMask) -> Callable[[int | None], LayerMask]:
    """The masks of layers that have this one, whatever their window."""
    return lambda _: mask


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: LayerMask,
    scaling: float | None = None,
    noting: Any = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention with the heads of one key/value head stacked as further queries.

    Stacking queries instead of repeating keys reads the cache once and was the fastest form on CPU
    (bf16, 4 query heads on 2, 200 keys, 1 token: 12 us against 39 us with `enable_gqa`).

    Args:
        module: the calling layer.
        query: `[B, H, T, head_dim]`.
        key: `[B, H_kv, U, head_dim]`.
        value: `[B, H_kv, U, head_dim]`.
        attention_mask: additive, in the query's dtype, `[B, 1, (H / H_kv) T, U]` as made by
            `additive_mask`; or a `PrefixMask`, with U all slots of the cache; or one that
            attends by itself.
        scaling: factor of the scores; None is `head_dim ** -0.5`.
        noting: the `CacheWriter` that receives the layer's queries, if any.

    Returns:
        `[B, T, H, head_dim]`, and None in place of the weights.
    """
    batch, heads, tokens, head_dim = query.shape
    kv_heads = key.shape[1]
    if noting is not None:
        noting.note(query, module.layer_idx)
    assert not isinstance(attention_mask, RowMask), "only rotary layers have that op"
    if isinstance(attention_mask, PrefixMask):
        mask, scale = attention_mask, head_dim**-0.5 if scaling is None else scaling
        mixed = mask.attend(query, key, value, mask.prefix, mask.seen, scale)
        return mixed.transpose(1, 2), None
    if not isinstance(attention_mask, Tensor):
        return attention_mask.attend(query, key, value, scaling), None
    if heads != kv_heads:
        query = query.reshape(batch, kv_heads, -1, head_dim)
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    if heads != kv_heads:
        output = output.reshape(batch, heads, tokens, head_dim)
    return output.transpose(1, 2), None


def additive_mask(mask: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """The additive mask of `grouped_attention`, from a boolean one.

    Excluded pairs get the smallest finite number, not minus infinity, so that a dead lane, which
    attends to nothing, gives finite numbers and never NaN.

    Args:
        mask: bool `[B, T, U]`.
        groups: query heads per key/value head.
        dtype: dtype of the queries.

    Returns:
        `[B, 1, groups * T, U]`.
    """
    excluded = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=mask.device)
    scores = torch.where(mask, 0.0, excluded)
    if mask.shape[1] == 1:
        scores = scores.expand(-1, groups, -1)
    elif groups > 1:
        scores = scores.repeat(1, groups, 1)
    return scores[:, None]


def weights_and_outputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    seen: Tensor,
    exact: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Attention of one text with its weights.

    Args:
        query: `[1, H, T, D]`.
        key: `[1, H_kv, U, D]`.
        value: `[1, H_kv, U, D]`.
        scaling: of the scores; None for `D ** -0.5`.
        seen: bool `[T, U]`.
        exact: number type of the weights.

    Returns:
        `[H_kv, H / H_kv, T, U]`, and outputs `[1, T, H, D]`.
    """
    factor = query.shape[3] ** -0.5 if scaling is None else scaling
    asking = query[0].unflatten(0, (key.shape[1], -1))
    scores = asking @ key[0, :, None].transpose(2, 3) * factor
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1, exact)
    mixed = weights.to(value.dtype) @ value[0, :, None]
    return weights, mixed.flatten(0, 1).transpose(0, 1)[None]


def summed_by_head(queries: Tensor, kv_heads: int) -> Tensor:
    """Queries `[B, H, T, head_dim]`, added for each key/value head: `[B, H_kv, T, head_dim]`."""
    grouped: Tensor = queries.unflatten(1, (kv_heads, -1))
    return grouped.sum(2)


def assert_attention(model: Any) -> None:
    """Check that `transformers` will call our attention function.

    Raises:
        MissingCapabilityError: the registered function was replaced or ignored.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    chosen = model.config._attn_implementation
    if chosen != ATTENTION_NAME or ALL_ATTENTION_FUNCTIONS[chosen] is not grouped_attention:
        raise MissingCapabilityError(
            f"transformers would use the attention {chosen!r} instead of {ATTENTION_NAME!r}",
            remedy="Install a tested version: pip install 'specplan[run]'",
        )


AttentionInterface.register(ATTENTION_NAME, grouped_attention)
