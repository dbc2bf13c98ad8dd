"""Texts side by side in rows of one length, so that little of a pass is padding."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.runtime.models.heads.text_attention import Texts
from specplan.training.losses import labels_ahead


@dataclass(frozen=True)
class Text:
    """What the target wrote.

    Attributes:
        tokens: of the prompt and the answer.
        start: length of the prompt; only the answer is learned.
    """

    tokens: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Rows:
    """Texts of a pass.

    Attributes:
        texts: tokens of the rows, `[B, T]`; shorter rows end in tokens of no text.
        counts: whether a token is of an answer, bool `[B, T]`.
    """

    texts: Texts
    counts: Tensor

    def to(self, device: torch.device) -> Rows:
        """The same on a device."""
        one = self.texts
        texts = (values.to(device) for values in (one.tokens, one.numbers, one.positions))
        return Rows(Texts(*texts), self.counts.to(device))


@dataclass(frozen=True)
class Labels:
    """Which tokens a head learns, and from where it looks ahead to them.

    Attributes:
        roots: int64 `[B, R]`, tokens with a label at any step; filled up by others.
        counts: bool `[steps, B, R]`, whether a root has a label at a step.
    """

    roots: Tensor
    counts: Tensor


def packed(texts: Sequence[Text], length: int) -> list[list[Text]]:
    """Texts by row: each, from the longest on, in the fullest row that has room (best fit).

    Args:
        texts: in an order that is kept among equals.
        length: tokens of a row; longer texts have a row of their own.
    """
    rows: list[list[Text]] = []
    room: list[tuple[int, int]] = []  # tokens that are left of a row, and its number
    for text in sorted(texts, key=lambda one: -len(one.tokens)):
        size = len(text.tokens)
        at = bisect_left(room, (size, -1))
        if at == len(room):
            rows.append([text])
            insort(room, (length - size, len(rows) - 1))
        else:
            left, number = room.pop(at)
            rows[number].append(text)
            insort(room, (left - size, number))
    return rows


def numbers_of(rows: int, most: int, seed: int, step: int) -> list[int]:
    """The rows of a step: every epoch has an order of its own.

    Args:
        rows: how many there are.
        most: of a step.
        seed: of the order.
        step: its number.
    """
    size = min(most, rows)
    epoch, place = divmod(step, rows // size)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(rows, generator=generator)
    return order[place * size : (place + 1) * size].tolist()


def rows_of(groups: Sequence[Sequence[Text]]) -> Rows:
    """Tensors of rows of texts."""
    longest = max(sum(len(text.tokens) for text in group) for group in groups)
    shape = len(groups), longest
    tokens, numbers = torch.zeros(shape, dtype=torch.int64), torch.full(shape, -1)
    positions = torch.arange(longest).repeat(len(groups), 1)
    counts = torch.zeros(shape, dtype=torch.bool)
    for row, group in enumerate(groups):
        begin = 0
        for number, text in enumerate(group):
            end = begin + len(text.tokens)
            tokens[row, begin:end] = torch.tensor(text.tokens)
            numbers[row, begin:end] = number
            positions[row, begin:end] -= begin
            counts[row, begin + text.start : end] = True
            begin = end
    return Rows(Texts(tokens, numbers, positions), counts)


def labels_of(
    rows: Rows, steps: int, begins: int, most: int | None = None, seed: int = 0
) -> Labels:
    """The labels of a pass.

    Args:
        rows: its texts.
        steps: tokens ahead that are learned.
        begins: the first token of a text that can be a root (`HeadDescription.begins`).
        most: roots of a row, drawn among all; None for all.
        seed: of this draw.
    """
    texts = rows.texts
    valid = torch.stack(
        [
            labels_ahead(texts.tokens, rows.counts, step)[1]
            & (texts.numbers.roll(-step, 1) == texts.numbers)
            & (texts.positions >= begins)
            for step in range(1, steps + 1)
        ]
    )
    used = valid.any(0)
    if most is not None and most < used.shape[1]:
        drawn = torch.rand(used.shape, generator=torch.Generator().manual_seed(seed))
        drawn = drawn.to(used.device) * used
        used = used & (drawn >= drawn.topk(most, 1).values[:, -1:])
    count = int(used.sum(1).max())
    roots = used.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
    return Labels(roots, (valid & used).gather(2, roots.expand(steps, -1, -1)))
