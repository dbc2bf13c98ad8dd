"""The interface of everything that runs in a forward: a causal language model, or a module.

A module drafts, judges or encodes requests: it may read hidden states of other models, look several
tokens ahead, and give other outputs than logits. `CausalModel` (`causal.py`) does none of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.images.inputs import ImageInputs
from specplan.runtime.models.attention import AttentionMask
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request


@runtime_checkable
class Module(Protocol):
    """See the module's docstring.

    Attributes:
        num_layers: attention layers that write its cache; may be 0.
        vocab_size: entries of its logits.
        hidden_size: width of its hidden states.
        max_positions: positions that it was made for.
        dtype: of its hidden states.
        cache_dtype: of its caches.
        logits_dtype: of its logits.
        device: of its weights.
        optional_features: the last token of a text, and drafted ones, may enter without the state
            of another model. What such a token leaves in a cache is gone when the round ends.
        by_slots: it looks ahead by slots below a node, which run through its layers; else by heads
            on the node's state.
        slots_enter: the layer at which slots enter.
        tokens_read: last tokens of a path whose embeddings enter.
        slots_first: it gives logits at slots alone: the first slot below a node tells its children.
    """

    num_layers: int
    vocab_size: int
    hidden_size: int
    max_positions: int
    dtype: torch.dtype
    cache_dtype: torch.dtype
    logits_dtype: torch.dtype
    device: torch.device
    optional_features: bool
    by_slots: bool
    slots_enter: int
    slots_first: bool
    tokens_read: int

    def weights(self) -> dict[str, Tensor]:
        """See `specplan.runtime.models.causal.CausalModel.weights`."""
        ...

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """See `specplan.runtime.models.causal.CausalModel.new_cache`."""
        ...

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """States that come with the requests, `[B, F]`: of a track whose layer is that word."""
        ...

    def images_of(self, requests: Sequence[Request]) -> ImageInputs | None:
        """Images of a batch as this model reads them, for its cache; None where it reads none."""
        ...

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor | None,
    ) -> Tensor | None:
        """Inputs of the first layer, `[B, T, hidden]`, new memory.

        Args:
            tokens: int64 `[B, T]`; `[B, T, tokens_read]` where several are read, own ones last,
                and before the beginning the text's first.
            positions: int64 `[B, T]`; those of columns that do not count may lie before the text.
            features: states of the tokens as many nodes above as the forward says, `[B, T, F]`,
                those of several layers joined; None where it reads none.
            known: bool `[B, T]`, tokens that have a state; others enter as without features.
            steps: passes of this module that each state went through already, int64 `[B, T]`;
                None without features.

        Returns:
            None for the tokens' embeddings, which `hidden` makes by itself.
        """
        ...

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """Inputs of slots `level` below nodes with these states, both `[B, R, hidden]`.

        The states are those that enter the layer `slots_enter`.
        """
        ...

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
        """See `CausalModel.hidden`; `features` is what `enter` gave."""
        ...

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None, level: int = 0) -> Tensor:
        """Rows of one kind.

        Args:
            hidden: states after the last layer, `[B, R, hidden]`.
            name: `logits` or `score`.
            steps: as of `enter`, int64 `[B, R]`; None for none.
            level: of the head, which looks this many tokens further ahead.

        Returns:
            `[B, R, V]` over the target's vocabulary, or `[B, R, 1]` of a score.
        """
        ...


def collect(name: str, part_of_model: object, tensors: dict[str, Tensor]) -> None:
    """Tensors of modules, of our own objects, and of lists of them."""
    if isinstance(part_of_model, Tensor):
        tensors[name] = part_of_model
    elif isinstance(part_of_model, torch.nn.Module):
        inner = (*part_of_model.named_parameters(), *part_of_model.named_buffers())
        tensors.update({f"{name}.{part}": tensor for part, tensor in inner})
    elif isinstance(part_of_model, list | tuple):
        for place, item in enumerate(part_of_model):
            collect(f"{name}.{place}", item, tensors)
    elif type(part_of_model).__module__.startswith("specplan."):
        for part, item in vars(part_of_model).items():
            collect(f"{name}.{part}", item, tensors)
