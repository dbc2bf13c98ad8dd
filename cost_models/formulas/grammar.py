"""Formulas in text as sympy expressions, by a closed grammar.

Numbers, names, `+ - * / **`, `<` and `==`, `x[i]` for the i-th of a sequence, and calls of `min`,
`max`, `exp`, `log`, `binomial`; `sum(term, i, low, high)` and `product(term, i, low, high)` bind
their index; `cases(value, condition, ..., otherwise)`; `chain_tokens(alpha, gamma)` for
1 + alpha + ... + alpha^gamma. Python's parser reads the text, and nothing is evaluated as code.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

Expression = Any
"""A sympy expression; sympy has no types."""

_FUNCTIONS = {"min": "Min", "max": "Max", "exp": "exp", "log": "log", "binomial": "binomial"}
_OVER_INDEX = {"sum": "Sum", "product": "Product"}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def parse_expression(text: str, named: Callable[[str], Expression]) -> Expression:
    """The expression that a text states.

    Args:
        text: of the grammar.
        named: gives the expression of a name; a KeyError where there is none.

    Raises:
        KeyError: the text has an unknown name.
        SyntaxError: the text is not Python's syntax.
        ValueError: the text has something outside the grammar.
    """
    return _expression(ast.parse(text, mode="eval").body, named)


def _expression(node: ast.expr, named: Callable[[str], Expression]) -> Expression:
    import sympy

    def read(part: ast.expr) -> Expression:
        return _expression(part, named)

    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return sympy.sympify(number)
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(ast.USub(), operand):
            return -read(operand)
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            return _BINARY[type(op)](read(left), read(right))
        case ast.Compare(left, [ast.Lt()], [right]):
            return read(left) < read(right)
        case ast.Compare(left, [ast.Eq()], [right]):
            return sympy.Eq(read(left), read(right))
        case ast.Subscript(sequence, index):
            return read(sequence)[read(index)]
        case ast.Call(ast.Name(id="cases"), [*pairs, otherwise], []) if len(pairs) % 2 == 0:
            branches = map(read, pairs)
            return sympy.Piecewise(*zip(branches, branches, strict=True), (read(otherwise), True))
        case ast.Call(ast.Name(id="chain_tokens"), [probability, length], []):
            alpha, gamma = read(probability), read(length)
            summed = (1 - alpha ** (gamma + 1)) / (1 - alpha)
            return sympy.Piecewise((gamma + 1, sympy.Eq(alpha, 1)), (summed, True))
        case ast.Call(ast.Name(id=name), [term, ast.Name(id=index), low, high], []) if (
            name in _OVER_INDEX
        ):
            symbol = sympy.Symbol(index, integer=True)
            inner = _expression(term, lambda other: symbol if other == index else named(other))
            return getattr(sympy, _OVER_INDEX[name])(inner, (symbol, read(low), read(high)))
        case ast.Call(ast.Name(id=name), arguments, []) if name in _FUNCTIONS:
            return getattr(sympy, _FUNCTIONS[name])(*map(read, arguments))
    raise ValueError(f"{ast.unparse(node)!r} is outside the grammar of formulas")
