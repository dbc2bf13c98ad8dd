"""Which round runs now: the plan's guards, with hysteresis."""

from __future__ import annotations

import ast

from specplan.ir.formula import evaluate, parse_formula
from specplan.ir.plan import Plan


def select_round(
    plan: Plan,
    *,
    batch: int,
    context: int,
    emitted: int = 0,
    phase: int = 0,
    current: str | None = None,
) -> str:
    """Name of the round to run.

    The current round is kept while its guard holds with every bound moved outwards by the
    schedule's hysteresis, so that a batch that hovers at a bound does not switch back and forth.

    Args:
        plan: a verified plan.
        batch: requests in the batch.
        context: longest text in the batch, in tokens.
        emitted: most tokens emitted so far by a request.
        phase: 0 while decoding, 1 in prefill.
        current: the round that ran last, None at the start.
    """
    if plan.schedule is None:
        return plan.rounds[0].name
    names = {"batch": batch, "context": context, "emitted": emitted, "phase": phase}
    for guard in plan.schedule.guards:
        formula = str(guard.formula)
        if evaluate(formula, names):
            return guard.round
        if guard.round == current and evaluate(_widened(formula, plan.schedule.hysteresis), names):
            return guard.round
    return plan.schedule.otherwise


class _Widen(ast.NodeTransformer):
    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        """Move a bound outwards: up for `<`, down for `>`."""
        factors = {
            ast.Lt: 1.0 + self.fraction,
            ast.LtE: 1.0 + self.fraction,
            ast.Gt: 1.0 - self.fraction,
            ast.GtE: 1.0 - self.fraction,
        }
        node.comparators = [
            ast.BinOp(bound, ast.Mult(), ast.Constant(factors[type(op)]))
            if type(op) in factors
            else bound
            for op, bound in zip(node.ops, node.comparators, strict=True)
        ]
        return node


def _widened(formula: str, fraction: float) -> str:
    tree = ast.parse(ast.unparse(parse_formula(formula)), mode="eval").body
    return ast.unparse(ast.fix_missing_locations(_Widen(fraction).visit(tree)))
