"""What is asked of masks by request."""

from __future__ import annotations

import torch
from torch import Tensor, arange


def first_true(mask: Tensor, dim: int = 1) -> Tensor:
    """The first place along a dimension, which is kept, where a mask holds; 0 where it never does.

    In graphs by a minimum: `argmax` of bytes, compiled ahead of time, was seen to give places
    beyond the end.
    """
    if not torch.compiler.is_exporting():
        return mask.to(torch.uint8).argmax(dim, keepdim=True)
    size = mask.shape[dim]
    shape = [1] * mask.dim()
    shape[dim] = size
    places = arange(size, device=mask.device).view(shape)
    return places.where(mask, size).amin(dim, keepdim=True) % size


def prefix(mask: Tensor) -> Tensor:
    """Bool `[B, N]`: up to the first entry where a mask does not hold."""
    return (~mask).cumsum(1) == 0


def marked(places: Tensor, live: Tensor, width: int) -> Tensor:
    """Bool `[B, width]`: the places that some of these `[B, W]` name, dead ones left out."""
    marks = live.new_zeros((len(places), width + 1))
    return marks.scatter(1, places.where(live, width), True)[:, :width]
