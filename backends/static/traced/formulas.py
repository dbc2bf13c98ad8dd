"""Scalar formulas (`specplan.ir.formula`) of all requests at once, with no look at the numbers."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from specplan.ir.formula import is_condition, parse_formula

_BINARY: dict[type[ast.operator], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: torch.remainder,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Lt: torch.lt,
    ast.LtE: torch.le,
    ast.Gt: torch.gt,
    ast.GtE: torch.ge,
    ast.Eq: torch.eq,
    ast.NotEq: torch.ne,
}
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "floor": torch.floor,
    "exp": torch.exp,
    "log": torch.log,
    "abs": torch.abs,
    "min": lambda a, b: torch.where(b < a, b, a),
    "max": lambda a, b: torch.where(b > a, b, a),
    "where": lambda flag, yes, no: torch.where(_true(flag), yes, no),
}
_LARGEST_POWER = math.log(torch.finfo(torch.float64).max)
_FAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": lambda value: ~torch.isfinite(value),
    "exp": lambda value: torch.isfinite(value) & (value > _LARGEST_POWER),
    "log": lambda value: value <= 0,
}
"""Where Python's own functions raise an error."""


class Formula:
    """Formulas of one set of requests.

    Args:
        like: `[B]`, on the device of the operands.

    Attributes:
        failed: bool `[B]`, where some formula had no value: it divided by zero, say. None where no
            formula had an op that can fail.
    """

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.failed: Tensor | None = None
        self._reached: Tensor | None = None  # where `and` and `or` look at what stands here

    def of(self, text: str, names: Mapping[str, Tensor]) -> Tensor:
        """The formula's value: bool `[B]` for a condition, else float64 `[B]`.

        Args:
            text: of the grammar.
            names: float64 `[B]` each.
        """
        value = self._value(parse_formula(text), names)
        return _true(value) if is_condition(text) else value.double()

    def _value(self, node: ast.expr, names: Mapping[str, Tensor]) -> Tensor:
        match node:
            case ast.Constant(value=int() | float() as value):
                return torch.full_like(self.like, float(value), dtype=torch.float64)
            case ast.Name(id=name):
                return names[name]
            case ast.BinOp(left, op, right):
                sides = self._number(left, names), self._number(right, names)
                if isinstance(op, ast.Div | ast.Mod):
                    self._fails(sides[1] == 0)
                return _BINARY[type(op)](*sides)
            case ast.UnaryOp(ast.Not(), operand):
                return ~_true(self._value(operand, names))
            case ast.UnaryOp(_, operand):
                return -self._number(operand, names)
            case ast.BoolOp(op, values):
                return self._joined(values, names, every=isinstance(op, ast.And))
            case ast.Compare(left, ops, comparators):
                return self._compared(ops, [left, *comparators], names)
            case ast.Call(ast.Name(id=name), args, _):
                given = [self._number(argument, names) for argument in args]
                if name in _FAILS:
                    self._fails(_FAILS[name](given[0]))
                return _FUNCTIONS[name](*given)
        raise AssertionError(f"{ast.unparse(node)} is outside the grammar, which was checked")

    def _number(self, node: ast.expr, names: Mapping[str, Tensor]) -> Tensor:
        """A truth counts 1 or 0."""
        return self._value(node, names).double()

    def _compared(
        self, ops: list[ast.cmpop], sides: list[ast.expr], names: Mapping[str, Tensor]
    ) -> Tensor:
        values = [self._number(side, names) for side in sides]
        pairs = zip(ops, values, values[1:], strict=False)
        truths = [_COMPARE[type(op)](a, b) for op, a, b in pairs]
        return torch.stack(truths).all(0) if len(truths) > 1 else truths[0]

    def _joined(self, nodes: list[ast.expr], names: Mapping[str, Tensor], *, every: bool) -> Tensor:
        """`and` or `or`: what stands after the one that decides is not looked at."""
        outer = self._reached
        truth = _true(self._value(nodes[0], names))
        for node in nodes[1:]:
            undecided = truth if every else ~truth
            self._reached = undecided if outer is None else outer & undecided
            following = _true(self._value(node, names))
            truth = truth & following if every else truth | following
        self._reached = outer
        return truth

    def _fails(self, where: Tensor) -> None:
        if self._reached is not None:
            where = where & self._reached
        self.failed = where if self.failed is None else self.failed | where


def _true(value: Tensor) -> Tensor:
    return value if value.dtype == torch.bool else value != 0
