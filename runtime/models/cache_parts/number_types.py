"""Keys and values in another number type than the model's: rounded as written, widened as read.

Attention multiplies what was stored, also within the pass that stores it, so that a token has one
key and one value whoever reads them. Only the type of a cache's tensors says how it stores them.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from specplan.ir.files import cached_digest

FP8 = torch.float8_e4m3fn
CODES = torch.uint8
"""How caches have numbers of `FP8`: few ops take that type, and all of them bytes."""
STORED = {"float16": torch.float16, "bfloat16": torch.bfloat16, "fp8": CODES}
"""Type of a cache's tensors by `specplan.cost_models.models.number_formats.CACHE_FORMATS`."""


class Caching(Protocol):
    """What a model or a head has of its caches.

    Attributes:
        dtype: of its hidden states.
        cache_dtype: of the tensors of its caches, one of `STORED` or the same.
        digest: its identity.
    """

    dtype: torch.dtype
    cache_dtype: torch.dtype
    digest: str


def store_caches(model: Caching, form: str | None) -> None:
    """Let a model have its keys and values in a format; this changes what it computes.

    Args:
        model: its identity becomes another, unless it is of this number type itself.
        form: one of `STORED`; None changes nothing.
    """
    if form is None or STORED[form] == model.dtype:
        return
    model.cache_dtype, model.digest = STORED[form], cached_digest(model.digest, form)


def rounded(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Keys or values as a cache of this type stores them; those beyond its range at its end."""
    if numbers.dtype == dtype:
        return numbers
    kind = FP8 if dtype == CODES else dtype
    if kind != torch.bfloat16:  # whose range is that of float32
        most = torch.finfo(kind).max
        numbers = numbers.clamp(-most, most)
    stored = numbers.to(kind)
    return stored.view(CODES) if dtype == CODES else stored


def widened(stored: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of a cache in a model's type."""
    if stored.dtype == CODES:
        stored = stored.view(FP8)
    return stored.to(dtype)
