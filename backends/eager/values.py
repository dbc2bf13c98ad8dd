"""What values of a round hold while it runs."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.backends.ops.when import Value as Held
from specplan.ir.values import Value

Scope: TypeAlias = dict[Value, Held]
T = TypeVar("T")


def held_as(held: object, kind: type[T]) -> T:
    """What a value holds, which the verifier knows to be of this kind."""
    assert isinstance(held, kind), f"a {type(held).__name__} is no {kind.__name__}"
    return held


def nodes_as(held: Held) -> Nodes:
    """Nodes, or a tree taken as the root and all its nodes."""
    return held.everything if isinstance(held, Tree) else held_as(held, Nodes)


__all__ = ["Held", "Scope", "held_as", "nodes_as"]
