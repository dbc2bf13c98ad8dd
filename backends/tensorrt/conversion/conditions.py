"""Conditions under which torch-tensorrt converts a node, by the words of its own source.

Those that nodes of rounds meet; a converter under any other condition counts as none. Source:
torch_tensorrt/dynamo/conversion/aten_ops_converters.py of versions 2.11 to 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

_MOST_SORTED = 3840
"""Of `topk` and `sort`."""
_CASTS = frozenset(
    {
        torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64,
        torch.bool,
    }
)  # fmt: skip


def value_of(node: Any) -> Any:
    """What a node gave when it was traced: a tensor without memory, a number; None if unknown."""
    return node.meta.get("val") if isinstance(node, fx.Node) else node


def _is_boolean(one: Any) -> bool:
    value = value_of(one)
    return value.dtype == torch.bool if isinstance(value, Tensor) else isinstance(value, bool)


def _booleans(node: fx.Node) -> str:
    return "" if all(map(_is_boolean, node.args[:2])) else "of whole numbers"


def _cast(node: fx.Node) -> str:
    dtype = node.kwargs.get("dtype")
    return "" if dtype in _CASTS else f"to {dtype}".replace("torch.", "")


def _few(node: fx.Node) -> str:
    count: Any = node.args[1]
    return _sorted(count)


def _short(node: fx.Node) -> str:
    """The length of the axis that is sorted; `sort.stable` has no converter."""
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", -1)
    assert isinstance(axis, int)
    return _sorted(value_of(node.args[0]).shape[axis])


def _sorted(count: Any) -> str:
    if not isinstance(count, int):
        return "of a number that is known only when it runs"
    return "" if count <= _MOST_SORTED else f"of more than {_MOST_SORTED}"


def _places(node: fx.Node) -> list[Tensor]:
    given: Any = node.args[1]
    values = (value_of(one) for one in given if one is not None)
    return [value for value in values if isinstance(value, Tensor)]


def _by_numbers(node: fx.Node) -> str:
    kinds = {place.dtype for place in _places(node)}
    if torch.bool in kinds:
        return "by a mask"
    return "" if kinds <= {torch.int32, torch.int64} else "by other numbers"


def _by_mask(node: fx.Node) -> str:
    return "" if any(place.dtype == torch.bool for place in _places(node)) else "by numbers"


def _written(node: fx.Node) -> str:
    return _summed(node) or ("" if _places(node) else "without places")


def fails(node: fx.Node) -> str:
    """Why converting fails of a node that the registry takes, which ends the whole compilation.

    Writes by places (`impl/select.py`): of 2.11 and 2.12 count the first axis of places only, and
    2.13 gives values the shape of the places, without the axes that are written whole.
    """
    if str(node.target) != "aten.index_put.default":
        return ""
    places, axes = _places(node), value_of(node.args[0]).dim()
    several = any(place.dim() > 1 for place in places)
    return "by places of several axes" if several and len(places) < axes else ""


def _summed(node: fx.Node) -> str:
    return "adds up what it writes to one place" if (node.args[3:] or [False])[0] else ""


def _joined(node: fx.Node) -> str:
    """TensorRT joins tensors of one rank only; an empty one of rank 1 has another."""
    given: Any = node.args[0]
    ranks = {value.dim() for value in map(value_of, given) if isinstance(value, Tensor)}
    return "" if len(ranks) < 2 else "of tensors with different ranks"


def _attention(node: fx.Node) -> str:
    """Sizes that agree but for the number of queries (2.12 and later)."""
    query, keys, values = (value_of(one).shape for one in node.args[:3])
    if keys != values:
        return "of keys and values of different sizes"
    alike = (*query[:-2], query[-1]) == (*keys[:-2], keys[-1])
    return "" if alike or node.kwargs.get("enable_gqa") else "of queries and keys that differ"


def _one_used(node: fx.Node) -> str:
    users = list(node.users)
    first = len(users) == 1 and users[0].args[1:] == (0,)
    return "" if first else "of which more than the first result is used"


def _always(_: fx.Node) -> str:
    return ""


Condition = Callable[[fx.Node], str]
"""Why a node does not meet it; empty where it does."""
_INDEX = "index_dtype_validator(node, settings) and "
CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        "": _always,
        "bitwise_type_validator": _booleans,
        "bitwise_not_type_validator": lambda node: (
            "" if _is_boolean(node.args[0]) else "of whole numbers"
        ),
        "to_copy_dtype_validator(placeholder_only=False)": _cast,
        "to_copy_dtype_validator(placeholder_only=True)": _cast,
        # `clone` and casts have a converter for inputs that go straight out, and one for all others
        "not is_only_operator_on_placeholder(node, settings)": _always,
        "is_only_operator_on_placeholder": _always,
        "topk_validator": _few,
        "sort_validator": _short,
        "cat_validator": _joined,
        "one_user_validator": _one_used,
        "getitem_validator": _always,  # where what it is taken from is converted, see `split`
        "cumsum_validator": _always,  # not by TensorRT-RTX
        "refit_validator": _always,  # not in engines whose weights may change
        "scaled_dot_product_attention_validator": _attention,
        "has_static_shapes_in_args([1])": _always,
        f"{_INDEX}(not index_has_bool_indices(node, settings))": _by_numbers,
        f"{_INDEX}index_nonbool_validator(node, settings) and"
        " index_has_bool_indices(node, settings)": _by_mask,
        f"{_INDEX}index_nonbool_validator(node, settings)": _written,
        f"{_INDEX}index_nonbool_validator(node, settings) and"
        " (not args_bounds_check(node.args, 3, False))": _written,
    }
)
