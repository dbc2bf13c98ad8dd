"""Rounds specialised for what their lookups match.

The host looks up before a round begins, so it knows which lookup is the first to have a match.
Without a match, what the round does for looked-up nodes is done for dead ones: a form without them
gives the same tokens for less. Where a round drafts otherwise for requests without a match, by a
model or by another lookup, a form for each outcome leaves out the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate
from specplan.ir.op import Op
from specplan.ir.ops import Accept, Compute, Forward, Lookup, Measure, Root, Uniform, Update, When
from specplan.ir.ops.compute import AROUND
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.types.infer import infer_round
from specplan.ir.types.lifetimes import read_by
from specplan.ir.types.renaming import renamed
from specplan.ir.types.scope import operands
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import TEXT_STATE, Value

_NODES_THEN_BONUS = frozenset({"greedy", "token", "recursive"})
"""Rules of whose numbers one judges each node, and the next one draws the bonus token."""
_UNKNOWN: frozenset[float] = frozenset()
_MOST_CASES = 4096
"""Numbers for which a formula is tried."""
NO_MATCH = -1
"""The outcome in which no lookup has a match; others are the number of the first that has one."""


def deciding_lookups(item: Round) -> tuple[Lookup, ...]:
    """The lookups for whose outcomes a round has forms; empty where it has no forms.

    They are all of its lookups, begin at the root, and what they propose is counted, verified and
    learned from alone.
    """
    lookups = tuple(op for op in walk(item.ops) if isinstance(op, Lookup))
    roots = {value for op in item.ops if isinstance(op, Root) for value in op.results}
    rules = {op.rule.name for op in walk(item.ops) if isinstance(op, Accept)}
    decide = rules <= _NODES_THEN_BONUS and all(
        op in item.ops and op.at in roots and _is_only_verified(item.ops, {*op.results})
        for op in lookups
    )
    return lookups if decide else ()


def outcomes_of(item: Round) -> tuple[int, ...]:
    """What a round's lookups may come to, `NO_MATCH` last; empty where it has no forms."""
    lookups = deciding_lookups(item)
    return (*range(len(lookups)), NO_MATCH) if lookups else ()


def match_copied(op: Op) -> int | None:
    """The longest match of an op that copies what follows it in the text; None of other ops."""
    if not isinstance(op, Lookup) or op.source != TEXT_STATE or op.children != 1 or not op.match:
        return None
    return op.match[-1]


def outcome_words(outcome: int | None) -> str:
    """How the name of a round's form ends, as `-unmatched`; the round's own name as it is."""
    return {None: "", 0: "-matched", NO_MATCH: "-unmatched"}.get(outcome, f"-matched-{outcome}")


def specialized(plan: Plan, name: str, outcome: int) -> Plan | None:
    """The plan with a round for batches whose requests all have the same outcome.

    It draws the numbers that the whole round draws.

    Args:
        plan: any plan.
        name: of the round.
        outcome: one of `outcomes_of` the round.

    Returns:
        None where the round has no such form, or it is the round itself.
    """
    item = plan.round(name)
    lookups = deciding_lookups(item)
    if not lookups:
        return None
    first = len(lookups) if outcome == NO_MATCH else outcome
    folding = _Folding(lookups[:first], lookups[first : first + 1])
    ops = renamed(tuple(folding.of(item.ops)), Value, folding.name)
    read = read_by(ops)
    ops = tuple(op if read.intersection(op.results) else _without_logits(op) for op in ops)
    made = _drawing_alike(plan, item, replace(item, ops=ops))
    if made is None or made.ops == item.ops:
        return None
    rounds = tuple(made if one is item else one for one in plan.rounds)
    return replace(plan, rounds=rounds)


def _without_logits(op: Op) -> Op:
    """An op of which nothing is read; a pass runs on for what it leaves in caches and tracks."""
    return replace(op, results=(), gives=()) if isinstance(op, Forward) else op


def _is_only_verified(ops: Iterable[Op], drafted: set[Value]) -> bool:
    """Whether drafted values are counted, verified and learned from alone; `drafted` grows."""
    for op in ops:
        if op.body is not None and not _is_only_verified(op.body.ops, drafted):
            return False
        read = {*operands(op), *(() if op.body is None else op.body.yields)}
        if read.isdisjoint(drafted) or isinstance(op, Accept | Update):
            continue
        if isinstance(op, Forward | When):
            drafted.update(op.results)
        elif not (isinstance(op, Measure) and op.kind.name == "count"):
            return False
    return True


@dataclass
class _Folding:
    """Ops without what an outcome of the lookups decides.

    Attributes:
        silent: lookups in which no request has a match.
        matching: those in which every request has one; nothing is known of others.
        known: what a value may be, where that is known.
        names: values that are others now.
    """

    silent: Sequence[Lookup]
    matching: Sequence[Lookup]
    known: dict[Value, frozenset[float]] = field(default_factory=dict)
    names: dict[Value, Value] = field(default_factory=dict)

    def name(self, value: Value) -> Value:
        """What a value is called now."""
        return self.names.get(value, value)

    def of(self, ops: Iterable[Op]) -> Iterator[Op]:
        """What is left of ops."""
        for op in ops:
            match op:
                case Lookup() if op in self.silent:
                    yield Root(results=op.results)
                case Measure(operand=Value() as counted) if counts := self._counts(counted):
                    self.known[op.results[0]] = counts
                    yield op
                case Compute():
                    self._compute(op)
                    yield op
                case When() if len(flags := self.known.get(op.flag, _UNKNOWN)) == 1:
                    entered = True in flags
                    if entered:
                        yield from self.of(op.body.ops)
                    given = op.body.yields if entered else op.otherwise
                    self.names.update(zip(op.results, map(self.name, given), strict=True))
                case _:
                    yield op

    def _counts(self, drafted: Value) -> frozenset[float]:
        """How many nodes of looked-up ones may live; empty where that is not known."""
        for lookup in self.matching:
            if drafted in lookup.results:
                children = lookup.children
                nodes = lookup.length * (children if isinstance(children, int) else sum(children))
                return frozenset(map(float, range(1, nodes + 1)))
        return frozenset({0.0} if any(drafted in one.results for one in self.silent) else ())

    def _compute(self, op: Compute) -> None:
        """Keep what a formula gives for all that its operands may be, if that is known."""
        names = [name for name, _ in op.operands]
        values = [self.known.get(value, _UNKNOWN) for _, value in op.operands]
        cases = [*islice(product(*values), _MOST_CASES + 1)]
        if not 0 < len(cases) <= _MOST_CASES or not AROUND.isdisjoint(names):
            return
        try:
            given = {evaluate(op.formula, dict(zip(names, case, strict=True))) for case in cases}
        except UsageError:  # it reads the batch, or has no value for some number
            return
        self.known[op.results[0]] = frozenset(given)


def _drawing_alike(plan: Plan, whole: Round, made: Round) -> Round | None:
    """The round with the numbers by which `whole` judges; None where no op can draw those.

    Number i judges node i in order, and the one after those of all nodes draws the bonus token.
    """
    before, after = _judged(plan, whole), _judged(plan, made)
    ops = made.ops
    for by, nodes in after.items():
        if nodes not in (0, before[by]):
            return None
        if nodes == 0 < before[by]:
            ops = tuple(_one_of(op, before[by]) if by in op.results else op for op in ops)
    return replace(made, ops=ops)


def _judged(plan: Plan, item: Round) -> dict[Value, int]:
    """By the uniforms of every judgement that draws, the nodes of the tree."""
    types = infer_round(plan, item).types
    judgements = [op for op in walk(item.ops) if isinstance(op, Accept) and op.by is not None]
    trees = [(op.by, types[op.judges]) for op in judgements]
    return {by: tree.nodes for by, tree in trees if by and isinstance(tree, TreeType)}


def _one_of(op: Op, number: int) -> Op:
    """The op that draws this one of its numbers alone."""
    assert isinstance(op, Uniform)
    return replace(op, count=1, offset=op.offset + number)
