"""The rules that end drafts early and that engines have, read off the ops of a round."""

from __future__ import annotations

import re
from typing import Any

from specplan.ir.ops import Compute, Grow, Load, Measure, Store
from specplan.ir.plan import Plan, Round, ValueState, walk

ENDING = (Compute, Load, Measure, Store)
_BAR = re.compile(r"\(?m < ([0-9.]+)\)?")
_HEURISTIC = re.compile(r"where\(hit < all, max\(k - 1, 1\), min\(k \+ 2, \d+\)\)")


def read_ending(plan: Plan, item: Round) -> dict[str, Any]:
    """The rule that ends drafts early, where engines have it; empty for another or none."""
    ops = list(walk(item.ops))
    computed = [str(op.formula) for op in ops if isinstance(op, Compute)]
    measures = [op for op in ops if isinstance(op, Measure)]
    grown = {op.logits for op in ops if isinstance(op, Grow)}
    match computed:
        case [stop] if (bar := _BAR.fullmatch(stop)) and len(measures) == 1:
            (measure,) = measures  # of the logits of the token that was just drafted
            if measure.kind.name == "top1" and measure.operand in grown:
                return {"bar": float(bar[1])}
        case ["m >= k", after] if _HEURISTIC.fullmatch(after):
            (length,) = (state for state in plan.states if isinstance(state, ValueState))
            return {"first": int(float(str(length.kind.get("init"))))}
    return {}
