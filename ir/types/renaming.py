"""Values or states of ops named anew, in regions too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from specplan.ir.op import Region
from specplan.ir.values import State, Value

T = TypeVar("T")
NameT = TypeVar("NameT", Value, State)


def renamed(item: T, kind: type[NameT], named: Callable[[NameT], NameT]) -> T:
    """The same op, or tuple of ops, with every name of a kind replaced.

    Args:
        item: an op, or whatever ops hold.
        kind: `Value` or `State`.
        named: asked for what an op reads before what it defines, in program order.
    """
    renamed_item: T = _renamed(item, kind, named)
    return renamed_item


def _renamed(item: Any, kind: type[Any], named: Callable[[Any], Any]) -> Any:
    if isinstance(item, kind):
        return named(item)
    if isinstance(item, tuple):
        return tuple(_renamed(part, kind, named) for part in item)
    if isinstance(item, Region):
        return Region(
            ops=_renamed(item.ops, kind, named),
            yields=_renamed(item.yields, kind, named),
            until=_renamed(item.until, kind, named),
        )
    if dataclasses.is_dataclass(item) and hasattr(item, "results"):
        fields = [field.name for field in dataclasses.fields(item)]
        fields.sort(key=lambda name: name == "results")  # what is read was defined before
        changed = {name: _renamed(getattr(item, name), kind, named) for name in fields}
        return dataclasses.replace(item, **changed)  # type: ignore[type-var]
    return item
