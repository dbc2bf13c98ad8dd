"""The simplest equivalent plan: nothing that is never read, no draws where nothing is random."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from specplan.ir.ops import (
    Accept,
    Compute,
    Graft,
    Grow,
    Load,
    Lookup,
    Measure,
    Mix,
    Op,
    Pick,
    Place,
    Prune,
    Relabel,
    Repeat,
    Root,
    Segment,
    Uniform,
    When,
)
from specplan.ir.plan import Plan, Round
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.infer import infer_round
from specplan.ir.types.lifetimes import read_by
from specplan.ir.types.value_types import NodesType, TreeType, Type
from specplan.ir.values import Entry, Value
from specplan.passes.values import with_body, with_rounds, with_values

WITHOUT_EFFECT = (
    Root, Grow, Lookup, Place, Relabel, Graft, Pick, Prune, Mix, Measure, Compute, Uniform, Load,
)  # fmt: skip
"""Ops that change nothing but the values they define."""


def canonicalise(plan: Plan) -> Plan:
    """What changes nothing, or is never read -> nothing; at temperature 0 draws -> best ranks.

    `repeat 0`, `graft` of one tree and `prune` to all nodes give what they were given. A plan made
    for temperature 0 alone judges by `rule=greedy`, and one drawn child is the best one.
    """
    return with_rounds(plan, lambda item: _round(plan, item))


def _round(plan: Plan, item: Round) -> Round:
    ops = item.ops
    if plan.assumptions.greedy:
        ops = tuple(_each(ops, _greedy))
    types = infer_round(plan, dataclasses.replace(item, ops=ops)).types
    names: dict[Value, Value] = {}
    ops = tuple(_shortened(ops, types, names))
    ops = with_values(ops, lambda value: names.get(value, value))
    while (needed := tuple(_needed(ops, read_by(ops)))) != ops:
        ops = needed
    return dataclasses.replace(item, ops=ops)


def _greedy(op: Op) -> Op:
    """Without chance: the law of a request of temperature 0 has one token."""
    if isinstance(op, Accept) and _is_exact_everywhere(op):
        return dataclasses.replace(op, rule=Entry("greedy"), by=None)
    if isinstance(op, Grow) and op.how == "draw" and op.children == 1:
        return dataclasses.replace(op, how="best", by=None)
    return op


def _is_exact_everywhere(op: Accept) -> bool:
    rule = BUILTIN.find("rule", op.rule.name)
    return rule is not None and rule.lossless == "always"


def _each(ops: Iterable[Op], change: Callable[[Op], Op]) -> Iterator[Op]:
    """Ops changed one by one, in regions too."""
    for op in ops:
        if isinstance(op, Repeat | When | Segment):
            yield with_body(op, _each(op.body.ops, change))
        else:
            yield change(op)


def _shortened(
    ops: Iterable[Op], types: Mapping[Value, Type], names: dict[Value, Value]
) -> Iterator[Op]:
    """Ops but those that hand on what they were given; `names` gains what theirs stand for.

    Types in a loop are those of its last trip, by which no earlier one is judged.
    """
    for op in ops:
        given = _handed_on(op, types)
        if given is not None:
            names.update((name, names.get(v, v)) for name, v in zip(op.results, given, strict=True))
        elif isinstance(op, Repeat | When | Segment):
            inside = {} if isinstance(op, Repeat) else types
            yield with_body(op, _shortened(op.body.ops, inside, names))
        else:
            yield op


def _handed_on(op: Op, types: Mapping[Value, Type]) -> tuple[Value, ...] | None:
    """The values that an op gives as it got them; None for an op that does something."""
    if isinstance(op, Repeat) and op.count == 0:
        return tuple(initial for _, initial in op.carried)
    if isinstance(op, Graft) and len(op.trees) == 1 and op.same == "keep":
        return op.trees
    if isinstance(op, Prune):
        tree, to = types.get(op.tree), types.get(op.to)
        needed = (to.indices or ()) if isinstance(to, NodesType) else ()
        whole = isinstance(tree, TreeType) and set(range(tree.nodes)) <= set(needed)
        if op.to == op.tree or whole:
            return (op.tree,)
    return None


def _needed(ops: Iterable[Op], read: set[Value]) -> Iterator[Op]:
    """Ops that have an effect or define what is read."""
    for op in ops:
        if isinstance(op, Repeat | When | Segment):
            yield with_body(op, _needed(op.body.ops, read))
        elif not isinstance(op, WITHOUT_EFFECT) or not read.isdisjoint(op.results):
            yield op
