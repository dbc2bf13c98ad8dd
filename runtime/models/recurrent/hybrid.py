"""What families with recurrent layers and attention share: stock layers around mixers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.families import LayerMasks, angles_of
from specplan.runtime.models.kv_cache import CacheWriter

Attend: TypeAlias = Callable[[Any, Tensor], Tensor]
"""The attention of a stock layer, over its input."""


class HybridFamily(ABC):
    """Two blocks a layer: one that mixes tokens, by a state or by attention, and an MLP."""

    packs = False

    def __init__(self, model: Any) -> None:
        inner, config = model.model, model.config
        self.inner, self.layers = inner, list(inner.layers)
        self.angles = angles_of(inner.rotary_emb)
        self.windows: tuple[int | None, ...] = (None,) * len(self.layers)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: CacheWriter,
        layers: tuple[int, int],
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """See `Family.run`; whatever mixes tokens counts as the attention of its layer."""
        angles, mask = self.angles(hidden, positions), masks(None)

        def attend(layer: Any, given: Tensor) -> Tensor:
            attended: Tensor = layer.self_attn(
                given,
                position_embeddings=angles,
                attention_mask=mask,
                cache=writer,
                noting=writer,
            )[0]
            return attended

        for index in range(*layers):
            if index not in skips.attentions:
                hidden = hidden + self.mixed(index, hidden, attend, writer)
            if index not in skips.mlps:
                hidden = hidden + self.mlp(index, hidden)
        return hidden

    @abstractmethod
    def mixed(self, index: int, hidden: Tensor, attend: Attend, writer: CacheWriter) -> Tensor:
        """What the first block of a layer adds."""

    @abstractmethod
    def mlp(self, index: int, hidden: Tensor) -> Tensor:
        """What the second block of a layer adds."""
