"""What runs without the host becomes one unit, which a device may record once and play again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from specplan.ir.infer import infer_round
from specplan.ir.lifetimes import read_by
from specplan.ir.ops import Accept, Forward, Lookup, Op, Repeat, Segment, When
from specplan.ir.plan import Plan, Round, SourceState, walk
from specplan.ir.scope import states
from specplan.ir.types import TreeType
from specplan.ir.values import TEXT_STATE, Value
from specplan.passes.values import FreshNames, segment_of, with_body, with_rounds


def capture(plan: Plan) -> Plan:
    """Ops up to the next host source or host control -> `segment capture=true { ... }`.

    The host looks up what follows drafted tokens, and whatever is declared `at=host`, the blocks
    that a pass leaves out among it; what follows the text alone is an input of the round. A loop
    that may stop early asks the host after every trip unless it says `control=masked` or `device`:
    its body is a unit of its own. Runs of ops without a forward or an acceptance are not worth
    recording.
    """
    return with_rounds(plan, lambda item: _round(plan, item))


def _round(plan: Plan, item: Round) -> Round:
    if any(isinstance(op, Segment) and op.capture for op in walk(item.ops)):
        return item
    marks = _Marks(FreshNames(item), _asks(plan, item))
    return dataclasses.replace(item, ops=tuple(marks.recorded(item.ops, set())))


def _asks(plan: Plan, item: Round) -> set[int]:
    """Identities of the lookups, updates and forwards that wait for the host."""
    found: set[int] = set()
    for step in infer_round(plan, item).steps:
        op = step.op
        if isinstance(op, Lookup) and op.source == TEXT_STATE:
            tree = step.reads[op.tree]
            if isinstance(tree, TreeType) and tree.nodes:
                found.add(id(op))
        elif _at_host(plan, op):
            found.add(id(op))
    return found


def _at_host(plan: Plan, op: Op) -> bool:
    """Whether an op asks a source on the host, or teaches it."""
    touched = map(plan.state, states(op))
    return any(isinstance(state, SourceState) and state.at == "host" for state in touched)


@dataclasses.dataclass(frozen=True)
class _Marks:
    """Where the host comes in.

    Attributes:
        fresh: names that are free in the round.
        asks: identities of ops that wait for it.
    """

    fresh: FreshNames
    asks: set[int]

    def recorded(self, ops: Sequence[Op], wanted: set[Value]) -> Iterator[Op]:
        """Ops of a region with all runs between two visits to the host put into segments.

        Args:
            ops: of the region.
            wanted: what its end hands on.
        """
        run: list[Op] = []
        for place, op in enumerate(ops):
            if not self._host(op):
                run.append(op)
                continue
            yield from self._unit(run, read_by(ops[place:]) | wanted)
            run = []
            yield self._inside(op)
        yield from self._unit(run, wanted)

    def _host(self, op: Op) -> bool:
        body = op.body
        if body is None:
            return id(op) in self.asks
        loop = isinstance(op, Repeat) and body.until is not None and op.control is None
        return loop or getattr(op, "control", None) == "host" or any(map(self._host, body.ops))

    def _unit(self, run: list[Op], later: set[Value]) -> Iterator[Op]:
        if any(isinstance(op, Forward | Accept) for op in walk(tuple(run))):
            yield segment_of(tuple(run), later, self.fresh, capture=True)
        else:
            yield from run

    def _inside(self, op: Op) -> Op:
        """An op that the host takes part in, with what it does not see of its region recorded."""
        if not isinstance(op, Repeat | When | Segment):
            return op
        body = op.body
        wanted = set(body.yields) | ({body.until} if body.until is not None else set())
        return with_body(op, self.recorded(body.ops, wanted))
