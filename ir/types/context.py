"""What an op's types are inferred from: the plan, and the names in scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from specplan.ir.op import Region
from specplan.ir.plan import Plan
from specplan.ir.types.scope import expect, look, nodes_of
from specplan.ir.types.value_types import NodesType, Type
from specplan.ir.values import Value

T = TypeVar("T")
Scope = dict[Value, Type]


class WalkRegion(Protocol):
    """Infers the types of a region's ops."""

    def __call__(
        self,
        region: Region,
        scope: Scope,
        given: Mapping[Value, Type],
        *,
        trip: int = 0,
        trips: int = 1,
        conditional: bool = False,
        lane: str | None = None,
    ) -> Scope:
        """The scope at the region's end.

        Args:
            region: the region.
            scope: names that stand around it.
            given: its parameters.
            trip: which of `trips` trips through it this is.
            trips: how many there are.
            conditional: it may be left out for some requests.
            lane: what runs beside other lanes; None for that of what stands around it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Where an op stands.

    Attributes:
        plan: the plan that it is an op of.
        scope: names that are defined before it, with their types.
        ends: per model, the end of its stack (`specplan.ir.ops.forward.stack_ends`).
        walk: infers the types of a region.
    """

    plan: Plan
    scope: Scope
    ends: Mapping[str, int]
    walk: WalkRegion

    def look(self, name: Value, what: str) -> Type:
        """The type of a name in scope, or rule `ssa` broken."""
        return look(self.scope, name, what)

    def expect(self, name: Value, kind: type[T], what: str) -> T:
        """The type of a name, which must be of that kind, or rule `type` broken."""
        return expect(self.scope, name, kind, what)

    def nodes(self, name: Value, what: str) -> NodesType:
        """Nodes, or a tree taken as all its nodes with the root."""
        return nodes_of(self.scope, name, what)

    def region(
        self,
        region: Region,
        given: Mapping[Value, Type] = MappingProxyType({}),
        *,
        trip: int = 0,
        trips: int = 1,
        conditional: bool = False,
        lane: str | None = None,
    ) -> Context:
        """The context at a region's end; see `WalkRegion`."""
        inner = self.walk(
            region, self.scope, given, trip=trip, trips=trips, conditional=conditional, lane=lane
        )
        return Context(self.plan, inner, self.ends, self.walk)

    def yields(self, region: Region) -> tuple[Type, ...]:
        """Types of what a region hands out, at its end."""
        return tuple(self.look(name, "yield") for name in region.yields)
