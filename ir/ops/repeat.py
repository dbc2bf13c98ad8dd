"""`repeat`: a loop of at most so many trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Region, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context, Place
from specplan.ir.types.scope import WORDS
from specplan.ir.types.value_types import FlagType, LogitsType, TreeType, Type
from specplan.ir.values import Value
from specplan.ir.world import Batch


@dataclass(frozen=True, kw_only=True)
class Repeat(Op):
    """Run the body at most `count` times; carried values are (parameter, initial) pairs.

    In a loop with `until=`, requests whose flag `only` is false take no trip.

    %c = repeat 4 (%t = %t0) {
    %c = repeat 4 (%t = %t0) only=%go {
    """

    keyword = "repeat"
    gone = (("control", "a backend chooses how"),)
    positional = ("count",)
    count: int
    carried: tuple[tuple[Value, Value], ...] = ()
    only: Value | None = None
    body: Region = field(default_factory=Region)

    def infer(self, context: Context) -> tuple[Type, ...]:
        """What the last trip yields; with `until=` its last nodes may be missing."""
        body, until = self.body, self.body.until
        if len(body.yields) != len(self.carried):
            counts = f"repeat carries {len(self.carried)} values and yields {len(body.yields)}"
            raise RuleError("arity", counts)
        if self.only is not None:
            context.expect(self.only, FlagType, "only")
            if until is None:
                raise RuleError(
                    "arity", "only= needs a loop that may end early; give yield ... until="
                )
        carried = tuple(context.look(initial, "repeat") for _, initial in self.carried)
        parameters = [parameter for parameter, _ in self.carried]
        ends = [carried] if self.only is not None else []
        for trip in range(self.count):
            given = dict(zip(parameters, carried, strict=True))
            inner = context.region(body, given, Place(trip=trip, trips=self.count))
            following = inner.yields(body)
            for before, after in zip(carried, following, strict=True):
                if type(before) is not type(after):
                    raise RuleError(
                        "type",
                        f"the body yields {WORDS[type(after)]} for carried {WORDS[type(before)]}",
                    )
            if until is not None:
                inner.expect(until, FlagType, "until")
            carried = following
            ends.append(carried)
        if until is None:
            return carried
        return tuple(_cut_short(item, [end[i] for end in ends]) for i, item in enumerate(carried))

    @property
    def trips(self) -> int:
        """Most trips through its region."""
        return self.count

    def limited(self, trips: int) -> Repeat:
        """The same loop with so many trips at most."""
        return replace(self, count=trips)

    def demand(self, step: Step, plan: Plan) -> Work:
        """Nothing itself; the ops of its region have demands of their own."""
        return Work(self.keyword, 0)

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """Trips until the flag of `until` holds, request by request."""
        carried = {
            request: [scope[name] for _, name in self.carried] for request, scope in scopes.items()
        }
        going = {
            request for request, scope in scopes.items() if self.only is None or scope[self.only]
        }
        outer = {request: batch.worlds[request].trip for request in scopes}
        trips = dict.fromkeys(scopes, 0)
        for index in range(self.count):
            if not going:
                break
            inner = {}
            for request in sorted(going):
                batch.worlds[request].trip = outer[request] * self.count + index
                names = (parameter for parameter, _ in self.carried)
                inner[request] = {
                    **scopes[request],
                    **dict(zip(names, carried[request], strict=True)),
                }
            batch.run(self.body.ops, inner)
            for request, scope in inner.items():
                trips[request] += 1
                carried[request] = [scope[name] for name in self.body.yields]
                if self.body.until is not None and scope[self.body.until]:
                    going.discard(request)
        for request, scope in scopes.items():
            batch.worlds[request].trip = outer[request]
            values = batch.worlds[request].filled(self, carried[request])
            scope.update(zip(self.results, values, strict=True))
        if self.body.until is not None:
            batch.trips.append(trips)


def _cut_short(item: Type, ends: Sequence[Type]) -> Type:
    """The result of a loop that may end after any trip, whose last nodes may be missing."""
    if isinstance(item, LogitsType):
        return replace(item, root=all(isinstance(end, LogitsType) and end.root for end in ends))
    if not isinstance(item, TreeType):
        return item
    return replace(item, ragged=True, newest=None)


OP = Repeat
