"""Several tokens ahead in one pass of a language model: slots behind each root.

They hold mask tokens (PARD, arXiv 2504.18583) or trained embeddings. Slots of a root see its text
up to itself and the slots before them, as in decoding, where they stand behind the last token.
Gradients pass where the layers have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from specplan.runtime.models.attention import Additions, LayerMask, additive_mask
from specplan.runtime.models.families import LayerMasks
from specplan.runtime.models.heads.text_attention import TextAndOwn, Texts, Unrolled


class Layers(Protocol):
    """The stages of a language model; see `specplan.runtime.models.families.Family`."""

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor: ...  # noqa: D102

    def run(  # noqa: D102
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: Any,
        layers: tuple[int, int],
    ) -> Tensor: ...

    def finish(self, hidden: Tensor) -> Tensor: ...  # noqa: D102


class Store(Unrolled):
    """Keys and values of one look ahead, as layers of language models write them."""

    rotate_and_store = None
    additions: Additions | None = None

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """Queries are not stored."""


def states_ahead(
    layers: Layers,
    count: int,
    groups: int,
    dtype: torch.dtype,
    texts: Texts,
    roots: Tensor,
    steps: int,
    mask_token: int | None = None,
) -> Iterator[Tensor]:
    """What the LM head reads to tell 1, 2, ... tokens behind some tokens, `[B, R, hidden]` each.

    Args:
        layers: see `hidden_ahead`.
        count: see `hidden_ahead`.
        groups: see `hidden_ahead`.
        dtype: see `hidden_ahead`.
        texts: see `hidden_ahead`.
        roots: see `hidden_ahead`.
        steps: see `hidden_ahead`.
        mask_token: stands where tokens ahead are told; needed from the second one on.
    """

    def masks(states: Tensor, ahead: Tensor, step: int) -> Tensor:
        assert mask_token is not None, "only models with mask tokens look further ahead"
        return layers.embed(torch.full_like(roots, mask_token), ahead)

    for states in hidden_ahead(layers, count, groups, dtype, texts, roots, steps, masks):
        yield layers.finish(states)


def hidden_ahead(
    layers: Layers,
    count: int,
    groups: int,
    dtype: torch.dtype,
    texts: Texts,
    roots: Tensor,
    steps: int,
    enter: Callable[[Tensor, Tensor, int], Tensor],
    enters: int = 0,
    skipping: Callable[..., Tensor] | None = None,
    additions: Additions | None = None,
) -> Iterator[Tensor]:
    """States after the last layer at some tokens, and at 1, 2, ... slots behind each of them.

    Args:
        layers: of the model.
        count: how many there are.
        groups: query heads per key/value head.
        dtype: of hidden states.
        texts: none of a row sees another, `[B, T]`.
        roots: int64 `[B, R]`, the tokens.
        steps: tokens and slots.
        enter: what enters at slots, from states of the tokens that they stand behind, their own
            positions `[B, R]`, and how many tokens they lie ahead; new memory.
        enters: the layer before which they enter.
        skipping: runs the tokens and slots, with the arguments of `layers.run`, where they leave
            out blocks that the text before them does not.
        additions: to projections of the layers, at slots alone.

    Yields:
        For each step `[B, R, hidden]`, before the final norm.
    """
    seen, positions, store, span = texts.causal(), texts.positions, Store(), (enters, count)

    def first(window: int | None) -> LayerMask:
        distance = positions[:, :, None] - positions[:, None]
        visible = seen if window is None else seen & (distance < window)
        return additive_mask(visible, groups, dtype)

    entered = layers.embed(texts.tokens, positions)
    entered = layers.run(entered, positions, first, store, (0, enters))
    nodes = _rows(entered, roots)
    states = layers.run(entered, positions, first, store, span)
    place, of_roots = positions.gather(1, roots), _rows(seen, roots)
    if skipping is None:
        yield _rows(states, roots)
    else:  # a root attends to what it wrote itself
        of_roots = of_roots & (positions[:, None] < place[:, :, None])
    for step in range(skipping is None, steps):
        ahead = place + step
        distance = ahead[:, :, None] - positions[:, None]

        def further(window: int | None, distance: Tensor = distance) -> LayerMask:
            near = of_roots if window is None else of_roots & (distance < window)
            return TextAndOwn(additive_mask(near, groups, dtype), window)

        store.additions = additions if step else None
        entering = enter(nodes, ahead, step) if step else nodes
        yield (skipping or layers.run)(entering, ahead, further, store, span)


def _rows(values: Tensor, roots: Tensor) -> Tensor:
    """Values `[B, T, F]` at roots `[B, R]`."""
    return values.gather(1, roots[..., None].expand(-1, -1, values.shape[2]))
