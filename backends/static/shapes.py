"""Shapes that a graph of a round cannot hold, found before one is made; no torch."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.backends.reference import shapes
from specplan.ir.capabilities import Refusal
from specplan.ir.infer import infer_round
from specplan.ir.ops import Lookup
from specplan.ir.plan import Plan, ValueState
from specplan.ir.printer import print_op
from specplan.ir.types import TreeType


def shape_refusals(plan: Plan) -> Iterator[Refusal]:
    """What the interpreter refuses, trees that are carried on, and lookups of drafted tokens.

    Texts are looked up before a round runs.
    """
    yield from shapes.shape_refusals(plan)
    for state in plan.states:
        if isinstance(state, ValueState) and state.kind.name != "number":
            reason = "of what goes from round to round it keeps numbers only"
            yield Refusal("static", f"state @{state.name}", reason)
    for item in plan.rounds:
        for step in infer_round(plan, item).steps:
            if isinstance(step.op, Lookup):
                tree = step.reads[step.op.tree]
                if isinstance(tree, TreeType) and tree.nodes:
                    yield Refusal("static", print_op(step.op), "drafted tokens are not looked up")
