"""Rows of a batch that stay, and slots of each of them side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def exchanged(tensor: Tensor, stay: Sequence[int], new: int, fill: float = 0) -> Tensor:
    """Some rows of a tensor, and new ones behind them."""
    rows = tensor[list(stay)]
    return torch.cat([rows, rows.new_full((new, *rows.shape[1:]), fill)])


def padded(
    sources: list[list[int]], targets: list[list[int]], trash: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Slots of each request as int64 `[B, M]`, filled up with the trash slot."""
    width = max(len(row) for row in sources)

    def filled(rows: list[list[int]]) -> Tensor:
        even = [row + [trash] * (width - len(row)) for row in rows]
        return torch.tensor(even, dtype=torch.int64, device=device)

    return filled(sources), filled(targets)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """How many slots two lines begin with alike."""
    pairs = enumerate(zip(one, other, strict=True))
    return next((at for at, (left, right) in pairs if left != right), len(one))
