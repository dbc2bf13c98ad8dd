"""A head along whole texts, as decoding runs it: with gradients, in batches, step after step.

At every step tokens are the text's own; from the second step on states are the head's own (the
training-time test of EAGLE-3, arXiv 2503.01840; DeepSeek-V3, arXiv 2412.19437). What a head says at
a row and step is what it says in decoding when the row's token is the root and the text's next
tokens were drafted: of training, and of measuring acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specplan.runtime.models.heads.drafter import Drafter


class Unrolled:
    """Keys and values of all steps so far, side by side, which gradients go through.

    Attributes:
        positions: int64 `[B, U]`.
        used: U.
        parts: keys and values by layer, `[B, H_kv, U, head_dim]`.
    """

    def __init__(self) -> None:
        self.positions = torch.zeros(0, 0, dtype=torch.int64)
        self.parts: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def used(self) -> int:
        """Keys so far."""
        return self.positions.shape[1]

    def add(self, positions: Tensor) -> None:
        """The positions of the step that runs next, int64 `[B, T]`."""
        self.positions = torch.cat([self.positions, positions], 1) if self.used else positions

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Those of a layer `[B, H_kv, T, head_dim]`, behind those of earlier steps."""
        if layer_idx in self.parts:
            before = self.parts[layer_idx]
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        self.parts[layer_idx] = keys, values
        return keys, values


def unrolled(
    heads: Drafter | Sequence[Drafter],
    tokens: Tensor,
    features: Tensor,
    steps: int,
    rows: Tensor | None = None,
) -> Iterator[Tensor]:
    """Logits that predict the tokens 1, 2, ... `steps` places after each token of some texts.

    Args:
        heads: a head, or a target's modules, one for each step.
        tokens: int64 `[B, T]`.
        features: the target's states at these tokens, those of several layers joined, `[B, T, F]`.
        steps: tokens ahead; at most the levels of a head that looks ahead in one pass.
        rows: int64 `[R]`, which tokens are roots, for block drafters; all when None.

    Yields:
        For each step `[B, T, V]` (`[B, R, V]` by a block drafter). Rows before the head's first
        (`HeadDescription.begins`) hold no prediction, nor do those whose tokens lie beyond the end.
    """
    modules = [heads] if isinstance(heads, Drafter) else [*heads]
    head = modules[0]
    if head.description.join == "block":
        yield from _block(head, tokens, features, steps, rows)
        return
    if len(modules) > 1:
        yield from _modules(modules, tokens, features, steps)
        return
    if head.description.levels.by == "heads" and head.description.levels.count > 1:
        yield from _heads(head, tokens, features, steps)
        return
    yield from _steps(head, tokens, features, steps)


def _entered(head: Drafter, tokens: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """What enters at each token from the target's states, and the tokens' positions."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    shift = min(head.description.begins, 1)
    above = features.roll(shift, 1) if shift else features
    zero = torch.zeros_like(tokens)
    return head.enter(tokens, positions, above, positions >= shift, zero), positions


def _seen(positions: Tensor, begins: int) -> Tensor:
    """Which tokens each attends to, bool `[B, T, T]`: see `HeadDescription.begins`."""
    causal = positions[:, :, None] >= positions[:, None]
    return causal & ((positions >= begins)[:, None] | (positions < begins)[:, :, None])


def _heads(head: Drafter, tokens: Tensor, features: Tensor, steps: int) -> Iterator[Tensor]:
    """Heads on one state."""
    states, _ = _entered(head, tokens, features)
    zero = torch.zeros_like(tokens)
    for level in range(steps):
        yield head.rows(states, "logits", zero, level)


def _steps(head: Drafter, tokens: Tensor, features: Tensor, steps: int) -> Iterator[Tensor]:
    """A head on its own states, or on mask tokens: each row sees the text, and its own steps."""
    entered, positions = _entered(head, tokens, features)
    zero, store, slots = torch.zeros_like(tokens), Unrolled(), head.description.levels.count > 1
    mask = _seen(positions, head.description.begins)
    own = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device).expand_as(mask)
    for step in range(steps):
        store.add(positions + step)
        states = head.run(entered, positions + step, mask, store, (0, head.num_layers), store)
        yield head.rows(states, "logits", zero + step)
        mask, ahead = torch.cat([mask, own], 2), step + 1
        if slots:
            entered = head.enter_slots(states, ahead)
        else:
            moved, known = tokens.roll(-ahead, 1), torch.ones_like(tokens, dtype=torch.bool)
            entered = head.enter(moved, positions + ahead, states, known, zero + ahead)


def _modules(
    modules: Sequence[Drafter], tokens: Tensor, features: Tensor, steps: int
) -> Iterator[Tensor]:
    """Modules with weights of their own: each runs the whole text on the states of the last."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    zero, states = torch.zeros_like(tokens), features
    for head, step in zip(modules, range(steps), strict=False):
        seen, store = _seen(positions, head.description.begins), Unrolled()
        store.add(positions)
        entered = head.enter(tokens, positions, states.roll(1, 1), positions >= 1, zero)
        states = head.run(entered, positions, seen, store, (0, head.num_layers), store)
        yield head.rows(states, "logits", zero).roll(-step, 1)


def _block(
    head: Drafter, tokens: Tensor, features: Tensor, steps: int, rows: Tensor | None
) -> Iterator[Tensor]:
    """A block at each of some roots: it sees the states of the text before, and itself."""
    batch, length = tokens.shape
    place = torch.arange(length, device=tokens.device)
    rows = place if rows is None else rows
    count, slots = len(rows), head.description.levels.count
    zero = torch.zeros_like(tokens)
    context = head.enter(tokens, place.expand_as(tokens), features, zero + 1, zero)
    roots = tokens[:, rows]
    first = head.enter(roots, rows.expand_as(roots), None, None, None)
    blocks = [first, *(head.enter_slots(first, level) for level in range(1, slots + 1))]
    states = torch.cat([context, *blocks], 1)
    root = rows.repeat(slots + 1)
    block = torch.cat([place * 0 - 1, torch.arange(count, device=rows.device).repeat(slots + 1)])
    ahead = torch.arange(slots + 1, device=rows.device).repeat_interleave(count)
    positions = torch.cat([place, root + ahead]).expand(batch, -1)
    seen = torch.eye(len(block), dtype=torch.bool, device=rows.device)
    seen[length:, :length] = place < root[:, None]
    seen[length:, length:] = block[length:, None] == block[length:]
    store = Unrolled()
    store.add(positions)
    mask = seen.expand(batch, -1, -1)
    states = head.run(states, positions, mask, store, (0, head.num_layers), store)[:, length:]
    parts = states.split(count, 1)[1 : steps + 1]
    for part in parts:
        yield head.rows(part, "logits", None)
