"""Operations on masks with a row per request."""

from __future__ import annotations

import torch
from torch import Tensor, arange


def first_true(mask: Tensor, dim: int = 1) -> Tensor:
    """The first true place along a dimension, kept with size 1; 0 if there is none.

    In graphs by a minimum: `argmax` of bytes, compiled ahead of time, gave places beyond the end.
    """
    if not torch.compiler.is_exporting():
        return mask.to(torch.uint8).argmax(dim, keepdim=True)
    size = mask.shape[dim]
    shape = [1] * mask.dim()
    shape[dim] = size
    places = arange(size, device=mask.device).view(shape)
    return places.where(mask, size).amin(dim, keepdim=True) % size


def prefix(mask: Tensor) -> Tensor:
    """Bool `[B, N]`: entries before the first false one."""
    return (~mask).cumsum(1) == 0


def marked(places: Tensor, live: Tensor, width: int) -> Tensor:
    """Bool `[B, width]`, true at places `[B, W]` that are live."""
    marks = live.new_zeros((len(places), width + 1))
    return marks.scatter(1, places.where(live, width), True)[:, :width]
