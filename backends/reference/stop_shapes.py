"""Loops that end by request, as far as a plan can be refused for them; no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specplan.ir.infer import RoundTypes, Step
from specplan.ir.ops import (
    Adopt,
    Graft,
    Grow,
    Lookup,
    Measure,
    Op,
    Pick,
    Place,
    Relabel,
    Repeat,
    Reroot,
    Segment,
)
from specplan.ir.plan import Round, walk
from specplan.ir.scope import operands
from specplan.ir.types import FlagType, Lineage, LogitsType, NumberType, TreeType
from specplan.ir.values import Value

_WITHIN = frozenset({"pick", "grow", "forward", "uniform", "measure", "compute"})
_GROWS = (Grow, Lookup, Place, Relabel, Graft, Adopt, Reroot)


class EndedLoops:
    """The loops of a round that end by request, and what they give."""

    def __init__(self, item: Round, types: RoundTypes) -> None:
        self.item, self.types = item, types
        self.loops = [
            op for op in walk(item.ops) if isinstance(op, Repeat) and op.body.until is not None
        ]
        given = {name: types.types.get(name) for op in self.loops for name in op.results}
        self.rows = {name for name, held in given.items() if isinstance(held, LogitsType)}
        self.trees: list[Lineage] = [
            held.lineage
            for held in given.values()
            if isinstance(held, TreeType) and held.lineage is not None
        ]
        self.within = {id(op) for loop in self.loops for op in walk(loop.body.ops)}

    def reasons(self) -> Iterator[tuple[Op, str]]:
        """The loops that cannot run, each with why."""
        for loop in self.loops:
            if not any(loop is op for op in _straight(self.item.ops)):
                yield loop, "a loop that stops early stands in no other loop or condition"
            within = (op for op in walk(loop.body.ops) if not isinstance(op, Segment))
            if any(op.keyword not in _WITHIN for op in within):
                words = ", ".join(sorted(_WITHIN))
                yield loop, f"a loop that stops early holds {words}, and nothing else"
            held = [self.types.types.get(name) for name, _ in loop.carried]
            if not all(isinstance(o, TreeType | LogitsType | NumberType | FlagType) for o in held):
                yield loop, "a loop that stops early carries trees, rows, numbers and flags"

    def reason(self, step: Step) -> str | None:
        """Why a step after such a loop cannot run on what it gave, or None."""
        op = step.op
        if id(op) in self.within:
            return None
        if not isinstance(op, Measure) and any(name in self.rows for name in operands(op)):
            return "rows of a loop that stops early belong to nodes that data decides"
        numbered = isinstance(op, Pick) and op.nodes is not None
        if (numbered or isinstance(op, _GROWS)) and any(map(self._ended, step.reads.items())):
            return "a tree that stopped growing early is judged, measured or pruned as it is"
        return None

    def _ended(self, read: tuple[Value, object]) -> bool:
        held = read[1]
        if not isinstance(held, TreeType) or held.lineage is None:
            return False
        return any(held.lineage.extends(lineage) for lineage in self.trees)


def _straight(ops: Iterable[Op]) -> Iterator[Op]:
    """Ops that stand in no loop or condition."""
    for op in ops:
        yield op
        if isinstance(op, Segment):
            yield from _straight(op.body.ops)
