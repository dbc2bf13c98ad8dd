"""Lowerings of the ops: one file each, pure functions of tensors.

`specplan.backends.ops.<op>` has a function named as the op. It takes the op, what its operands hold
(`specplan.backends.ops.values`) and what the verifier knows of the result, and gives what the op
gives. It reads no number of a tensor, loops over no requests, and its shapes follow from those of
its operands and from types, so that `torch.export` can trace it. What touches caches, texts and
sources stays with the backend that holds them: `forward` and `commit` are the arithmetic of slots
and masks, `lookup` begins with what a source found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from specplan.ir.ops import OPS


@cache
def lowerings() -> dict[str, Callable[..., Any]]:
    """By the keyword of the op, the function of the file of that name."""
    names = (module.name for module in iter_modules(__path__) if module.name in OPS)
    return {name: getattr(import_module(f"{__name__}.{name}"), name) for name in names}
