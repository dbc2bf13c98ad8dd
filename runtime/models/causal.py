"""Causal language models with exact control of positions, cache slots and the attention mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.number_formats import OUTER_FORMAT
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import quantized_digest
from specplan.runtime.images.inputs import ImageInputs, with_images, without_images
from specplan.runtime.models.attention import (
    Additions,
    AttentionMask,
    PrefixMask,
    RowMask,
    additive_mask,
)
from specplan.runtime.models.families import Family, RotaryFamily
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import collect
from specplan.runtime.models.quantized import QuantizedLinear, quantize
from specplan.runtime.models.recurrent.states import RecurrentCache
from specplan.runtime.models.supported import FAMILIES, LEARNED_POSITIONS
from specplan.runtime.requests import Request

UNBOUNDED = 1 << 40
"""Positions of a model without positions."""


class CausalModel:
    """A target or draft model.

    Attributes:
        name: name of the checkpoint's folder.
        vocab_size: entries of the logits.
        num_layers: decoder layers.
        hidden_size: width of hidden states.
        max_positions: positions that the model was made for.
        dtype: of hidden states, and of weights that are not quantized.
        cache_dtype: of caches; see `cache_parts/number_types.py` where it is another.
        device: of the weights.
        digest: identity of the checkpoint (`specplan.ir.files.model_digest`), and of its formats.
        quantized: its matrices are in a format of `RUN_FORMATS`.
        groups: query heads per key/value head.
        packs: it runs packed columns (`packed.py`).
        mask_token: it was trained to tell several tokens ahead at slots that hold this token (PARD,
            arXiv 2504.18583; key `pard_token`); None for other models.
        recurrent: some layers have a recurrent state (`recurrent/states.py`).
        learned_positions: positions have embeddings of their own.
        image_tokens: embeddings of one image in its prompts; 0 where it reads text alone.
        logits_dtype: float32, or float64 for a float64 model.

    It is a `specplan.runtime.models.modules.Module` without features and heads.
    """

    optional_features = slots_first = quantized = False
    slots_enter = image_tokens = 0
    tokens_read = 1

    def __init__(self, model: Any, *, name: str, digest: str) -> None:
        # Gradients are off for good, so that no call has to turn them off.
        model.requires_grad_(False).eval()
        config = model.config
        self.name = name
        self.digest = digest
        self.vocab_size: int = config.vocab_size
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.max_positions: int = getattr(config, "max_position_embeddings", UNBOUNDED)
        self.dtype: torch.dtype = model.dtype
        self.cache_dtype = self.dtype
        self.device: torch.device = model.device
        self.family: Family = FAMILIES[config.model_type](model)
        self.head = model.get_output_embeddings()
        self.groups = self.family.heads // self.family.kv_heads
        self.logits_dtype = torch.promote_types(self.dtype, torch.float32)
        self.packs = self.family.packs
        self.recurrent: bool = any(self.family.states)
        self.learned_positions = config.model_type in LEARNED_POSITIONS
        ahead = None if self.learned_positions else getattr(config, "pard_token", None)
        self.mask_token: int | None = None if ahead is None else int(ahead)
        self.by_slots = self.mask_token is not None

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """An empty cache for `batch` rows of `capacity` usable slots, plus one trash slot.

        With `queries` it stores those of the latest text tokens; see `KVCache`.
        """
        kind = RecurrentCache if self.recurrent else KVCache
        cache = kind.empty(
            batch=batch,
            capacity=capacity,
            num_layers=self.num_layers,
            num_kv_heads=self.family.kv_heads,
            head_dim=self.family.head_dim,
            dtype=self.cache_dtype,
            device=self.device,
            queries=queries,
            query_dtype=self.dtype,
        )
        if isinstance(cache, RecurrentCache):
            cache.add_states(self.family.states, self.logits_dtype, self.family.keyless)
        return cache

    def quantize(self, form: str) -> None:
        """Round the matrices of all layers, the head and the embeddings (these two to 8 bits).

        This changes what the model computes.

        Args:
            form: one of `RUN_FORMATS`.

        Raises:
            MissingCapabilityError: the layers are not rotary ones, or their rows no whole blocks.
        """
        if not isinstance(self.family, RotaryFamily):
            raise MissingCapabilityError(
                f"models of this architecture do not run in {form}",
                where=self.name,
                remedy="Give another dtype; Llama, Mistral, Qwen2 and Qwen3 run in it.",
            )
        for layer in self.family.layers:
            layer.quantize(form)
        embedding, outer = self.family.embedding, self.head.weight
        tied = embedding.weight is outer
        self.head = QuantizedLinear(quantize(outer, OUTER_FORMAT))
        rounded = self.head.weight if tied else quantize(embedding.weight, OUTER_FORMAT).values
        embedding.weight = torch.nn.Parameter(rounded, requires_grad=False)
        self.quantized = True
        self.digest = quantized_digest(self.digest, form)

    def images_of(self, requests: Sequence[Request]) -> ImageInputs | None:
        """See `Module.images_of`: a model of text leaves them out."""
        return ImageInputs.of(requests, self.device, None)

    @property
    def state_bytes(self) -> int:
        """Bytes of the recurrent states of one token, in all layers."""
        numbers = sum(prod(one) for layer in self.family.states for one in layer)
        return numbers * self.logits_dtype.itemsize

    def weights(self) -> dict[str, Tensor]:
        """Every tensor that the model computes with, by its path."""
        tensors: dict[str, Tensor] = {}
        collect("family", self.family, tensors)
        collect("head", self.head, tensors)
        return tensors

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor,
        cache: KVCache,
        gather: Tensor | None = None,
    ) -> Tensor:
        """The whole stack: write the tokens' keys and values to `slots` and return logits.

        Arguments are those of `hidden` and `logits`.

        Returns:
            `[B, R, V]` in float32 (float64 for a float64 model).
        """
        hidden = self.hidden(tokens, positions, slots, mask, cache)
        return self.logits(hidden, gather)

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor | PrefixMask | RowMask,
        cache: KVCache,
        layers: tuple[int, int] | None = None,
        features: Tensor | None = None,
        skips: Skips = NO_SKIPS,
        latest: Tensor | None = None,
        ahead: int = 0,
    ) -> Tensor:
        """Write the tokens' keys and values to `slots`; return the hidden states of the last layer.

        Dead lanes write to `cache.trash`; their tokens must be valid ids, their positions may be
        anything.

        Args:
            tokens: int64 `[B, T]`.
            positions: int64 `[B, T]`.
            slots: int64 `[B, T]`; distinct within a row, the trash slot excepted.
            mask: bool `[B, T, U]`, which of the first U slots each token attends to, itself
                included; U may be less than the slots of the cache, and the cost of attention is
                that of U. Sliding windows are applied here, by position, not by the caller. Or a
                `PrefixMask` or `RowMask`, for models without sliding windows.
            cache: as made by `new_cache`.
            layers: half-open span of layers that run; all when None.
            features: hidden states `[B, T, hidden]` that enter the first of these layers, which
                may be changed in place; the tokens' embeddings when None.
            skips: blocks to skip; they write no keys and values.
            latest: int64 `[B]`, see `CacheWriter`.
            ahead: how many of the columns, the last ones, are slots.

        Returns:
            `[B, T, hidden]`, before the final norm.
        """
        positions = positions.clamp(0, self.max_positions - 1 if self.learned_positions else None)
        used = mask.shape[2] if isinstance(mask, Tensor) else cache.capacity + 1
        writer = cache.writer(positions, slots, used)
        writer.follow(mask, latest)
        writer.additions = self.additions(ahead)
        places, mask = without_images(cache.images, positions, cache.positions[:, :used], mask)
        by_window, known = dict[int | None, Tensor](), self._known(mask)

        def masks(window: int | None) -> AttentionMask:
            if not isinstance(mask, Tensor):
                assert window is None, "kernels know no sliding window"
                return known
            if window not in by_window:
                allowed = mask if window is None else mask & near(positions, cache, writer, window)
                by_window[window] = additive_mask(allowed, self.groups, self.dtype)
            return by_window[window]

        run, span = self.family.run, layers or (0, self.num_layers)
        if features is not None:
            return run(features, places, masks, writer, span, skips)
        # no variable holds the embeddings, so that the first layer's output replaces them
        embed = with_images(cache.images, self.family.embed, positions)
        return run(embed(tokens, places), places, masks, writer, span, skips)

    def _known(self, mask: AttentionMask) -> AttentionMask:
        """A mask for a kernel, with what its op adds to the scores."""
        if not isinstance(mask, RowMask) or mask.seen is None:
            return mask
        return replace(mask, bias=additive_mask(mask.seen, 1, self.dtype))

    def logits(self, hidden: Tensor, gather: Tensor | None = None) -> Tensor:
        """The final norm and the head on hidden states after any layer.

        Args:
            hidden: `[B, T, hidden]`.
            gather: int64 `[B, R]`, which of the T tokens get logits; all when None.

        Returns:
            `[B, R, V]` in float32 (float64 for a float64 model).
        """
        if gather is not None:
            hidden = hidden.gather(1, gather[:, :, None].expand(-1, -1, hidden.shape[2]))
        return self.head(self.family.finish(hidden)).to(self.logits_dtype)  # type: ignore[no-any-return]

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor | None,
    ) -> None:
        """See `Module.enter`: the tokens' embeddings."""
        if features is not None:
            raise self._lacks("input for hidden states of other models")

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None, level: int = 0) -> Tensor:
        """See `Module.rows`: its logits."""
        if name != "logits" or level:
            raise self._lacks(f"head {level} that gives {name}")
        return self.logits(hidden)

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """See `Module.enter_slots`: mask tokens."""
        if self.mask_token is None:
            raise self._lacks("slots")
        masks = torch.full(states.shape[:2], self.mask_token, device=states.device)
        return self.family.embed(masks, masks)

    def additions(self, ahead: int) -> Additions | None:
        """What a pass whose last `ahead` columns are slots adds there; None for nothing."""
        return None

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """See `Module.outside`."""
        raise self._lacks(word)

    def _lacks(self, what: str) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self.name} is a plain decoder and has no {what}",
            remedy="Give a checkpoint that was trained for it.",
        )


def near(positions: Tensor, cache: KVCache, writer: Any, window: int) -> Tensor:
    """Pairs within a sliding window by position: query - key < window. Bool `[B, T, U]`."""
    keys = cache.positions[:, None, : writer.used]
    return (positions[:, :, None] - keys) < window
