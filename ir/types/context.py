"""What an op's types are inferred from: the plan, and the names in scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from specplan.ir.op import Region
from specplan.ir.plan import Plan
from specplan.ir.types.scope import expect, look, nodes_of
from specplan.ir.types.value_types import NodesType, Type
from specplan.ir.values import Value

T = TypeVar("T")
Scope = dict[Value, Type]
NO_PARAMETERS: Mapping[Value, Type] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Place:
    """How often the ops of a region run.

    Attributes:
        trip: number of this trip through the region.
        trips: how many trips there are.
        conditional: some requests may skip it.
        lane: runs in parallel with other lanes; None for the lane of the ops around.
    """

    trip: int = 0
    trips: int = 1
    conditional: bool = False
    lane: str | None = None

    def within(self, outer: Place) -> Place:
        """This place inside another."""
        return Place(
            outer.trip * self.trips + self.trip,
            outer.trips * self.trips,
            self.conditional or outer.conditional,
            self.lane or outer.lane,
        )


ONCE = Place()
WalkRegion: TypeAlias = Callable[[Region, Scope, Mapping[Value, Type], Place], Scope]
"""Infers the types of a region's ops.

From the region, the names around it, its parameters and its place to the names at its end."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where an op stands.

    Attributes:
        plan: the plan that it is an op of.
        scope: names that are defined before it, with their types.
        ends: per model, the end of its stack (`specplan.ir.types.residency.stack_ends`).
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
        self, region: Region, given: Mapping[Value, Type] = NO_PARAMETERS, place: Place = ONCE
    ) -> Context:
        """The context at a region's end; see `WalkRegion`."""
        inner = self.walk(region, self.scope, given, place)
        return Context(self.plan, inner, self.ends, self.walk)

    def yields(self, region: Region) -> tuple[Type, ...]:
        """Types of what a region hands out, at its end."""
        return tuple(self.look(name, "yield") for name in region.yields)
