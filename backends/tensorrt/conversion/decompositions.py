"""The decompositions that torch-tensorrt applies to a program, as far as rounds meet them.

Which ops it hands to torch's own, and which it rewrites itself, is data (`registry.py`); what its
own give is written here again, so that a round can be looked at without the package
(torch_tensorrt/dynamo/lowering/_decompositions.py of 2.11 to 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._export.utils import (
    _collect_all_valid_cia_ops_for_aten_namespace as composite_ops,
)
from torch._export.utils import _get_decomp_for_cia as composite_form
from torch._ops import OpOverload, OpOverloadPacket

from specplan.backends.tensorrt.conversion.registry import Registry

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention.default


def decompositions(registry: Registry) -> dict[Any, Callable[..., Any]]:
    """What rewrites a program before its ops are looked up, for `run_decompositions`.

    Args:
        registry: of the version.
    """
    left_alone = {op for name in registry.left_alone for op in _overloads(name)}
    attention = {_ATTENTION} if registry.unequal_lengths else set()
    composite = {
        op: composite_form(op)
        for op in composite_ops()
        if op not in left_alone and op not in attention
    }
    named = [_resolved(name) for name in sorted(registry.decomposed_by_torch)]
    table: dict[Any, Callable[..., Any]] = {**get_decompositions(named), **composite}
    own = {name: form for name, form in _OWN.items() if name in registry.decomposed}
    for name, form in own.items():
        table |= dict.fromkeys(_overloads(name), form)
    if not registry.unequal_lengths:
        table[_ATTENTION] = _attention
    return table


def _resolved(name: str) -> OpOverload | OpOverloadPacket:
    packet, _, overload = name.removeprefix("aten.").partition(".")
    known = getattr(_ATEN, packet)
    return getattr(known, overload) if overload else known  # type: ignore[no-any-return]


def _overloads(name: str) -> Iterator[OpOverload]:
    """Those of an op that is named with an overload, or without one."""
    known = _resolved(name)
    if isinstance(known, OpOverload):
        yield known
    else:
        yield from (getattr(known, overload) for overload in known.overloads())


def _same(given: Tensor) -> Tensor:
    return given


def _reshaped(given: Tensor, size: Any) -> Tensor:
    return torch.reshape(given, size)


def _copied(given: Tensor, size: Any) -> Tensor:
    return _ATEN._reshape_copy.default(given, size)  # type: ignore[no-any-return]


def _full(given: Tensor, fill: Any, **options: Any) -> Tensor:
    dtype = options.get("dtype") or given.dtype
    device = options.get("device") or given.device
    return torch.full(given.shape, fill, dtype=dtype, device=device)


def _silu(given: Tensor) -> Tensor:
    return given * torch.sigmoid(given)


def _inverse_root(given: Tensor) -> Tensor:
    return torch.reciprocal(torch.sqrt(given))


def _reciprocal(given: Tensor) -> Tensor:
    return torch.div(1, given)


def _log_softmax(given: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.log(torch.softmax(given, dim, dtype=torch.float if half_to_float else None))


def _scatter_added(given: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """One scatter for each place along the axis, added up."""
    summed = given
    for place in range(source.shape[dim]):
        zeros = torch.zeros(given.shape, dtype=given.dtype, device=given.device)
        one = index.select(dim, place).unsqueeze(dim)
        summed = summed + zeros.scatter(dim, one, source.select(dim, place).unsqueeze(dim))
    return summed


def _slice_scattered(
    given: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Tensor:
    size = given.shape[dim]
    first, last, _ = slice(start, end).indices(size) if isinstance(size, int) else (start, end, 1)
    if (first, last, step) == (0, size, 1):
        return source
    places = torch.arange(first, last, step, device=given.device)
    places = places.view([-1 if axis == dim % given.dim() else 1 for axis in range(given.dim())])
    return given.scatter(dim, places.expand_as(source), source)


def _select_scattered(given: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    place = index % given.shape[dim]
    return torch.slice_scatter(given, source.unsqueeze(dim), dim, place, place + 1)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """In parts (`decompose_attention`), with the mask that it is given: rounds have additive ones.

    The package's own form adds that to zeros first.
    """
    assert attn_mask is not None and not is_causal and not enable_gqa and not dropout_p
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor + attn_mask
    return torch.matmul(torch.softmax(scores, dim=-1), value)


_OWN: dict[str, Callable[..., Any]] = {
    "aten.rsqrt": _inverse_root,
    "aten.reciprocal.default": _reciprocal,
    "aten._unsafe_view": _reshaped,
    "aten.lift_fresh_copy": _same,
    "aten.alias": _same,
    "aten.silu.default": _silu,
    "aten.scatter_add.default": _scatter_added,
    "aten.slice_scatter.default": _slice_scattered,
    "aten.select_scatter.default": _select_scattered,
    "aten._log_softmax": _log_softmax,
    "aten.full_like": _full,
    "aten.view.default": _copied,
}
