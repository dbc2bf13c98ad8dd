"""The choice of the round that runs next: the guards of the schedule, with hysteresis."""

from __future__ import annotations

import ast
import functools

from specplan.ir.formula import evaluate, evaluate_tree, names_in, parse_formula
from specplan.ir.plan import Plan

_OUTWARDS = {ast.Lt: 1, ast.LtE: 1, ast.Gt: -1, ast.GtE: -1}


def select_round(
    plan: Plan,
    *,
    batch: int,
    context: int,
    emitted: int = 0,
    phase: int = 0,
    group: int = 0,
    current: str | None = None,
) -> str:
    """Name of the round to run.

    The current round is kept while its guard holds with every bound moved outwards by the
    schedule's hysteresis, so that a batch that hovers at a bound does not switch back and forth.
    Bounds of emitted tokens alone stay where they are: these only grow.

    Args:
        plan: a verified plan.
        batch: requests in the batch.
        context: longest text in the batch, in tokens.
        emitted: most tokens emitted so far by a request.
        phase: 0 while decoding, 1 in prefill.
        group: of the requests, where they are batched by kind.
        current: the round that ran last, None at the start.
    """
    if plan.schedule is None:
        return plan.rounds[0].name
    names = {"batch": batch, "context": context, "emitted": emitted, "phase": phase, "group": group}
    for guard in plan.schedule.guards:
        formula = str(guard.formula)
        if evaluate(formula, names):
            return guard.round
        if guard.round == current:
            wider = widened(formula, plan.schedule.hysteresis)
            if evaluate_tree(wider, names):
                return guard.round
    return plan.schedule.otherwise


@functools.lru_cache(maxsize=256)
def widened(formula: str, fraction: float) -> ast.expr:
    """The formula with the bound of every comparison moved outwards by a fraction of its size.

    `batch <= 4` becomes `batch <= 4 + fraction*abs(4)`; under a `not`, bounds move inwards.
    """
    return _widened(parse_formula(formula), fraction)


def _widened(node: ast.expr, fraction: float) -> ast.expr:
    match node:
        case ast.BoolOp(op, values):
            return ast.BoolOp(op, [_widened(value, fraction) for value in values])
        case ast.UnaryOp(ast.Not() as op, operand):
            return ast.UnaryOp(op, _widened(operand, -fraction))
        case ast.Compare(left, ops, comparators):
            sides = [left, *comparators]
            pairs = zip(sides, ops, sides[1:], strict=False)
            return ast.BoolOp(ast.And(), [_moved(a, op, b, fraction) for a, op, b in pairs])
    return node


def _moved(left: ast.expr, op: ast.cmpop, right: ast.expr, fraction: float) -> ast.expr:
    """One comparison with its bound moved: the side without names, else the right one.

    What reads emitted tokens alone is left as it is.
    """
    if names_in(left) | names_in(right) == {"emitted"}:
        return ast.Compare(left, [op], [right])
    outwards = _OUTWARDS.get(type(op), 0) * fraction
    if names_in(right) and not names_in(left):
        return ast.Compare(_shifted(left, -outwards), [op], [right])
    return ast.Compare(left, [op], [_shifted(right, outwards)])


def _shifted(bound: ast.expr, fraction: float) -> ast.expr:
    size = ast.Call(ast.Name("abs"), [bound], [])
    return ast.BinOp(bound, ast.Add(), ast.BinOp(ast.Constant(fraction), ast.Mult(), size))
