"""What values of a round hold while it runs."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.backends.ops.when import Value as Operand
from specplan.ir.values import Value

Scope: TypeAlias = dict[Value, Operand]
T = TypeVar("T")


def typed(operand: object, kind: type[T]) -> T:
    """What a value holds, which the verifier knows to be of this kind."""
    assert isinstance(operand, kind), f"a {type(operand).__name__} is no {kind.__name__}"
    return operand


def nodes_as(operand: Operand) -> Nodes:
    """Nodes, or a tree taken as the root and all its nodes."""
    return operand.everything if isinstance(operand, Tree) else typed(operand, Nodes)


__all__ = ["Operand", "Scope", "nodes_as", "typed"]
