"""A head along whole texts, as decoding runs it: with gradients, in batches, step after step.

At every step tokens are the text's own; from the second step on states are the head's own (the
training-time test of EAGLE-3, arXiv 2503.01840; DeepSeek-V3, arXiv 2412.19437). What a head says at
a row and step is what it says in decoding when the row's token is the root and the text's next
tokens were drafted: of training, and of measuring acceptance.

Several texts may stand one behind the other in a row (`Texts`): none sees another. From the second
step on only roots run, each on the keys of its text and of its own steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from specplan.runtime.models.ahead import hidden_ahead
from specplan.runtime.models.attention import LayerMask, additive_mask
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.parts.streams import AtSlots
from specplan.runtime.models.heads.text_attention import (
    TextAndBlock,
    TextAndOwn,
    Texts,
    Unrolled,
)


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
        tokens: int64 `[B, T]`, a text in each row.
        features: the target's states at these tokens, those of several layers joined, `[B, T, F]`.
        steps: tokens ahead; at most the levels of a head that looks ahead in one pass.
        rows: int64 `[R]`, which tokens are roots; all when None.

    Yields:
        For each step `[B, R, V]`. Rows before the head's first (`HeadDescription.begins`) hold no
        prediction, nor do those whose tokens lie beyond the end.
    """
    modules = [heads] if isinstance(heads, Drafter) else [*heads]
    length = torch.arange(tokens.shape[1], device=tokens.device)
    roots = (length if rows is None else rows).expand(len(tokens), -1)
    states = unrolled_states(modules, Texts.alone(tokens), features, steps, roots)
    zero = torch.zeros_like(roots)
    by_heads = modules[0].description.levels.by == "heads"
    for step, state in enumerate(states):
        head = modules[min(step, len(modules) - 1)]
        level = step if by_heads and head.description.levels.count > 1 else 0
        yield head.rows(state, "logits", zero + step, level)


def unrolled_states(
    modules: Sequence[Drafter], texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """The states behind the logits of `unrolled`, `[B, R, width]` for each step.

    Args:
        modules: see `unrolled`.
        texts: one text in a row, or several.
        features: see `unrolled`.
        steps: see `unrolled`.
        roots: int64 `[B, R]`.
    """
    head = modules[0]
    if head.description.join == "block":
        return _block(head, texts, features, steps, roots)
    if head.description.join == "slots":
        return _slots(head, texts, steps, roots)
    if len(modules) > 1:
        return _modules(modules, texts, features, steps, roots)
    if head.description.begins == 0:
        return _along(head, texts, features, steps, roots)
    if head.description.levels.by == "heads" and head.description.levels.count > 1:
        return _heads(head, texts, features, steps, roots)
    return _steps(head, texts, features, steps, roots)


def _at(values: Tensor, roots: Tensor) -> Tensor:
    """Values `[B, T]` or `[B, T, F]` at roots `[B, R]`; the last one beyond the end."""
    roots = roots.clamp(max=values.shape[1] - 1)
    if values.ndim == 2:
        return values.gather(1, roots)
    return values.gather(1, roots[..., None].expand(-1, -1, values.shape[2]))


def _entered(head: Drafter, texts: Texts, features: Tensor) -> Tensor:
    """What enters at each token from the target's states."""
    shift, tokens = min(head.description.begins, 1), _last_tokens(head, texts)
    above = features.roll(shift, 1) if shift else features
    known, zero = texts.positions >= shift, torch.zeros_like(texts.tokens)
    return head.enter(tokens, texts.positions, above, known, zero)


def _last_tokens(head: Drafter, texts: Texts) -> Tensor:
    """The tokens of texts; behind those before them, of a head that reads several."""
    count, tokens = head.tokens_read, texts.tokens
    if count == 1:
        return tokens
    place = torch.arange(tokens.shape[1], device=tokens.device)
    before = (place - texts.positions.clamp(max=back) for back in reversed(range(count)))
    return torch.stack([tokens.gather(1, one) for one in before], 2)


def _seen(texts: Texts, begins: int) -> Tensor:
    """Which tokens each attends to, bool `[B, T, T]`: see `HeadDescription.begins`."""
    late = texts.positions >= begins
    return texts.causal() & (late[:, None] | ~late[:, :, None])


def _first(
    head: Drafter, positions: Tensor, seen: Tensor, entered: Tensor, store: Unrolled
) -> Tensor:
    """States at every token, behind the first step."""

    def masks(window: int | None) -> LayerMask:
        distance = positions[:, :, None] - positions[:, None]
        visible = seen if window is None else seen & (distance < window)
        return additive_mask(visible, head.groups, head.dtype)

    return head.run(entered, positions, masks, store, (0, head.num_layers))


def _heads(
    head: Drafter, texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """Heads on one state, that of layers of their own where they have some."""
    entered = _entered(head, texts, features)
    if head.num_layers:
        seen = _seen(texts, head.description.begins)
        entered = _first(head, texts.positions, seen, entered, Unrolled())
    states = _at(entered, roots)
    for _ in range(steps):
        yield states


def _along(
    head: Drafter, texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """A head that reads the target's state at every token itself, drafted ones among them."""
    seen = _seen(texts, 0)
    states = _first(head, texts.positions, seen, _entered(head, texts, features), Unrolled())
    for step in range(steps):
        yield _at(states, roots + step)


def _steps(
    head: Drafter, texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """A head on its own states, or on mask tokens: each root sees its text, and its own steps."""
    store, seen = Unrolled(), _seen(texts, head.description.begins)
    slots = head.description.levels.count > 1
    entered = _entered(head, texts, features)
    states = _at(_first(head, texts.positions, seen, entered, store), roots)
    yield states
    positions, known = _at(texts.positions, roots), torch.ones_like(roots, dtype=torch.bool)
    tokens = _last_tokens(head, texts)
    seen = seen.gather(1, roots[..., None].expand(-1, -1, seen.shape[2]))
    for step in range(1, steps):
        place = positions + step
        if slots:
            entered = head.enter_slots(states, step)
        else:
            moved = _at(tokens, roots + step)
            entered = head.enter(moved, place, states, known, torch.full_like(roots, step))
        if head.description.body.on_text:
            states = entered
            yield states
            continue

        def masks(window: int | None, place: Tensor = place) -> LayerMask:
            distance = place[:, :, None] - texts.positions[:, None]
            visible = seen if window is None else seen & (distance < window)
            return TextAndOwn(additive_mask(visible, head.groups, head.dtype), window)

        states = head.run(entered, place, masks, store, (0, head.num_layers))
        yield states


def _modules(
    modules: Sequence[Drafter], texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """Modules with weights of their own: each runs the whole text on the states of the last."""
    states, known = features, texts.positions >= 1
    zero = torch.zeros_like(texts.tokens)
    for head, step in zip(modules, range(steps), strict=False):
        above = states.roll(1, 1)
        entered = head.enter(texts.tokens, texts.positions, above, known, zero)
        seen = _seen(texts, head.description.begins)
        states = _first(head, texts.positions, seen, entered, Unrolled())
        yield _at(states, roots + step)


def _block(
    head: Drafter, texts: Texts, features: Tensor, steps: int, roots: Tensor
) -> Iterator[Tensor]:
    """A block at each root: it sees the states of its text before, and itself."""
    slots = head.description.levels.count
    zero, length = torch.zeros_like(texts.tokens), texts.tokens.shape[1]
    context = head.enter(texts.tokens, texts.positions, features, zero + 1, zero)
    place = _at(texts.positions, roots)
    first = head.enter(_at(texts.tokens, roots), place, None, None, None)
    blocks = [first, *(head.enter_slots(first, level) for level in range(1, slots + 1))]
    ahead = torch.arange(slots + 1, device=roots.device)[:, None]
    positions = (place[:, None] + ahead).flatten(1)
    same = _at(texts.numbers, roots)[:, :, None] == texts.numbers[:, None]
    before = (same & (texts.positions[:, None] < place[:, :, None])).repeat(1, slots + 1, 1)

    def masks(window: int | None) -> LayerMask:
        seen, own = before, None
        if window is not None:
            seen = seen & (positions[:, :, None] - texts.positions[:, None] < window)
            own = ahead - ahead.T < window
        return TextAndBlock(additive_mask(seen, head.groups, head.dtype), slots + 1, own)

    states = torch.cat([context, *blocks], 1)
    everywhere = torch.cat([texts.positions, positions], 1)
    states = head.run(states, everywhere, masks, Unrolled(), (0, head.num_layers))[:, length:]
    yield from states.split(roots.shape[1], 1)[1 : steps + 1]


def _slots(head: Drafter, texts: Texts, steps: int, roots: Tensor) -> Iterator[Tensor]:
    """The target's own states at slots below the token before each root.

    With layers skipped: those of the root, and at slots below it.
    """
    target, levels = head.target, head.description.levels
    skipping = partial(target.family.run, skips=levels.skips) if levels.skipped else None
    above, adapters = int(skipping is None), head.entering.adapters
    states = hidden_ahead(
        target.family, target.num_layers, target.groups, target.dtype, texts,
        (roots - above).clamp(min=0), steps + above,
        lambda states, _, level: head.entering.slot(states, level),
        levels.enters, skipping, None if adapters is None else AtSlots(adapters),
    )  # fmt: skip
    if above:
        next(states)
    yield from states
