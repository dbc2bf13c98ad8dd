"""One class for every head: what enters, its layers, and its logits, as a description says.

A head is a `specplan.runtime.models.modules.Module`. Its methods keep gradients, so that training
runs what decoding runs (`specplan.runtime.models.heads.unrolled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.number_formats import OUTER_FORMAT
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import quantized_digest
from specplan.runtime.models.attention import (
    AttentionMask,
    LayerMask,
    PrefixMask,
    RowMask,
    additive_mask,
)
from specplan.runtime.models.causal import CausalModel, near
from specplan.runtime.models.families import LayerMasks
from specplan.runtime.models.heads.entering import Entering
from specplan.runtime.models.heads.layers import Layers
from specplan.runtime.models.heads.outputs import Outputs
from specplan.runtime.models.heads.passing import Passing
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import collect
from specplan.runtime.models.quantized import quantize_layers
from specplan.runtime.models.rotary_layers import for_rotation
from specplan.runtime.requests import Request


class Drafter(nn.Module):
    """A head and the target whose hidden states it reads.

    Its weights are NaN until they are loaded, so that a tensor that was forgotten shows.

    Args:
        description: what it is.
        target: whose states, embedding, final norm and LM head it uses, in whose number type.

    Attributes:
        description: what it is.
        target: the target.
        digest: identity of the checkpoint.
        name: name of the checkpoint's folder.
        quantized: its matrices are in a format of `RUN_FORMATS`.
        cache_dtype: see `CausalModel`.

    For the others see `specplan.runtime.models.modules.Module`.
    """

    def __init__(self, description: HeadDescription, target: CausalModel) -> None:
        super().__init__()
        self.description, self.target = description, target
        self.name = self.digest = description.family
        body = description.body
        self.entering = Entering(description)
        self.layers = Layers(body, description.join == "wide") if body.layers else None
        self.outputs = Outputs(description)
        self.num_layers, self.quantized = body.layers, False
        self.vocab_size, self.max_positions = target.vocab_size, target.max_positions
        self.passing = Passing(description, self.entering, self.layers)
        self.hidden_size = self.passing.width
        self.dtype, self.device = target.dtype, target.device
        self.cache_dtype = self.dtype
        self.logits_dtype = target.logits_dtype
        self.optional_features = self.slots_first = description.join == "block"
        self.by_slots, self.slots_enter = description.levels.by == "slots", 0
        self.tokens_read = description.tokens_read
        self.to(device=self.device, dtype=self.dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(torch.nan)

    def weights(self) -> dict[str, Tensor]:
        """See `CausalModel.weights`; those of the target among them."""
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        if self.layers is not None:
            own |= {f"rotary.{n}": x for n, x in self.layers.rotary[0].named_buffers()}
            collect("packed", self.layers.packed, own)
        return own | {f"target.{name}": value for name, value in self.target.weights().items()}

    def weights_by_name(self) -> dict[str, Tensor]:
        """Its own weights by the names that descriptions give them; tied ones several times."""
        named = self.named_parameters(remove_duplicate=False)
        parts = ("entering.", "outputs.")
        return {
            name.removeprefix(parts[0]).removeprefix(parts[1]): weight for name, weight in named
        }

    def quantize(self, form: str) -> None:
        """Round its matrices to a format, and LM heads of its own to 8 bits; see `quantize`."""
        if self.outputs.heads is not None:
            quantize_layers(self.outputs.heads, OUTER_FORMAT)
        quantize_layers(self, form)
        self.quantized, self.digest = True, quantized_digest(self.digest, form)

    def pack(self) -> None:
        """See `Layers.pack`."""
        if self.layers is not None and not self.passing.asks:
            self.layers.pack()

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """See `CausalModel.new_cache`."""
        layers = self.layers
        return KVCache.empty(
            batch=batch, capacity=capacity, num_layers=self.num_layers, queries=queries,
            num_kv_heads=1 if layers is None else layers.kv_heads,
            head_dim=1 if layers is None else layers.head_dim,
            dtype=self.cache_dtype, device=self.device, query_dtype=self.dtype,
        )  # fmt: skip

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """See `Module.outside`."""
        raise self._lacks(word)

    def images_of(self, requests: Sequence[Request]) -> None:
        """See `Module.images_of`: it reads states."""

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor | None,
    ) -> Tensor:
        """See `Module.enter`."""
        output = self.description.output
        later = features is not None and features.shape[2] == self.hidden_size
        if output.onward == "after_norm" and later and steps is not None:
            assert features is not None and self.outputs.norm is not None
            normed = self.outputs.norm(features)
            features = torch.where((steps > 0)[:, :, None], normed, features)
        return self.entering.enter(self.target, tokens, positions, features, known, steps)

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """See `Module.enter_slots`: a mask token."""
        return self.entering.mask(self.target).expand(*states.shape[:2], -1)

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: AttentionMask,
        cache: KVCache,
        layers: tuple[int, int] | None = None,
        features: Tensor | None = None,
        skips: Skips = NO_SKIPS,
        latest: Tensor | None = None,
        ahead: int = 0,
    ) -> Tensor:
        """See `CausalModel.hidden`; `features` is what `enter` gave.

        No row attends to the first tokens of a text, above which there is no state: see
        `HeadDescription.begins`.
        """
        assert features is not None, "heads enter by `enter`"
        if isinstance(mask, PrefixMask) or skips != NO_SKIPS:
            raise self._lacks("layers that kernels or skipped blocks know")
        positions, begins = positions.clamp(min=0), self.description.begins
        used = mask.shape[2] if isinstance(mask, Tensor) else mask.slots.shape[0]
        writer = cache.writer(positions, slots, used)
        if isinstance(mask, RowMask):
            mask = self._row_mask(mask, positions)
        elif begins:
            stateless = cache.positions[:, None, :used] < begins
            mask = mask & ~(stateless & (positions[:, :, None] >= begins))

        def masks(window: int | None) -> LayerMask:
            if not isinstance(mask, Tensor):
                return mask
            seen = mask if window is None else mask & near(positions, cache, writer, window)
            return additive_mask(seen, self.groups, self.dtype)

        return self.run(features, positions, masks, writer, layers or (0, self.num_layers))

    @property
    def fills(self) -> bool:
        """Whether keys and values follow from what enters: `fill` writes those of its one layer."""
        body = self.description.body
        packed = self.layers is not None and bool(self.layers.packed)
        return packed and body.layers == 1 and self.description.join != "block"

    def fill(self, features: Tensor, positions: Tensor, slots: Tensor, cache: KVCache) -> None:
        """Write the keys and values that `hidden` writes, and compute nothing else.

        Args:
            features: what `enter` gave, `[B, T, F]`.
            positions: int64 `[B, T]`.
            slots: int64 `[B, T]`.
            cache: as made by `new_cache`.
        """
        assert self.layers is not None
        positions = positions.clamp(min=0)
        writer = cache.writer(positions, slots, cache.capacity + 1)
        given, _ = self.passing.given(0, features)
        cos, sin = for_rotation(*self.layers.angles(features, positions))
        self.layers.packed[0].fill(given, cos, sin, writer)

    def _row_mask(self, mask: RowMask, positions: Tensor) -> RowMask:
        """With what its op adds to the scores; text stands in the slots of its positions."""
        begins, seen = self.description.begins, mask.seen
        if begins:
            later = mask.slots >= begins
            seen = later.expand(*positions.shape, -1) if seen is None else seen & later
        return mask if seen is None else replace(mask, bias=additive_mask(seen, 1, self.dtype))

    @property
    def groups(self) -> int:
        """Query heads per key/value head; 1 without layers."""
        return 1 if self.layers is None else self.layers.groups

    def run(
        self,
        states: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: Any,
        span: tuple[int, int],
    ) -> Tensor:
        """States after a half-open span of layers.

        Args:
            states: that enter it, `[B, T, F]`.
            positions: int64 `[B, T]`.
            masks: from the sliding window of a layer, None for none, to its mask.
            writer: where keys and values go and come from: a `CacheWriter`, or `Unrolled`.
            span: of layers.
        """
        if self.layers is None or span[0] == span[1]:
            return states
        stack, by_window = self.layers, dict[int | None, LayerMask]()
        states = states if span[0] else self.passing.begin(states)
        angles = stack.angles(states, self.passing.places(positions))
        for number in range(*span):
            window = stack.windows[number]
            if window not in by_window:
                by_window[window] = masks(window)
            states = self.passing.layer(number, states, by_window[window], angles, writer)
        return self.passing.end(states) if span[1] == self.num_layers else states

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None, level: int = 0) -> Tensor:
        """See `Module.rows`; tokens that it does not know have minus infinity."""
        if name != "logits":
            raise self._lacks(f"output {name}")
        logits = self.outputs.spread(self.own_logits(hidden, steps, level))
        return logits.to(self.logits_dtype)

    def own_logits(self, hidden: Tensor, steps: Tensor | None, level: int = 0) -> Tensor:
        """Logits of the tokens that it knows, `[B, T, vocabulary]`; see `Module.rows`."""
        hidden = self.passing.read(hidden, level)
        return self.outputs.logits(self.target, hidden, steps, level)

    def _lacks(self, what: str) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self.name} is a head of the family {self.description.family} and has no {what}",
            remedy="Give a checkpoint that was trained for it.",
        )
