"""Scalar formulas in a closed grammar: arithmetic, comparison, `and or not`, a few functions.

Python's own parser reads them, a whitelist of its nodes is all that is accepted, and the tree is
walked; nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.values import storable

_LONGEST = 1000
_DEEPEST = 50
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "floor": (1, math.floor),
    "exp": (1, math.exp),
    "log": (1, math.log),
    "abs": (1, abs),
    "min": (2, min),
    "max": (2, max),
    "where": (3, lambda flag, yes, no: yes if flag else no),
}


@functools.lru_cache(maxsize=1024)
def parse_formula(text: str) -> ast.expr:
    """The checked syntax tree of a formula.

    Raises:
        UsageError: when the text is not a formula of the grammar.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"a formula is at most {_LONGEST} characters long", where=f'"{text[:40]}"')
    try:
        tree = ast.parse(text, mode="eval").body
        _check(tree, _DEEPEST)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.args[0] if error.args else "not a formula"
        raise UsageError(
            f"not a formula ({reason})",
            where=f'"{text}"',
            remedy="Numbers, names, + - * / %, comparisons, and/or/not and "
            f"{', '.join(_FUNCTIONS)} are known.",
        ) from error
    return tree


def formula_names(text: str) -> frozenset[str]:
    """Names the formula reads."""
    return names_in(parse_formula(text))


def names_in(tree: ast.expr) -> frozenset[str]:
    """Names a syntax tree of the grammar reads."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    )


def is_condition(text: str) -> bool:
    """True when the formula's value is true or false."""
    tree = parse_formula(text)
    if isinstance(tree, ast.UnaryOp):
        return isinstance(tree.op, ast.Not)
    return isinstance(tree, ast.Compare | ast.BoolOp)


def evaluate(text: str, names: Mapping[str, float]) -> float | bool:
    """The formula's value with these names.

    Raises:
        UsageError: when a name is missing or the arithmetic fails.
    """
    return evaluate_tree(parse_formula(text), names)


def evaluate_tree(tree: ast.expr, names: Mapping[str, float]) -> float | bool:
    """`evaluate` for a syntax tree of the grammar."""
    try:
        return _value(tree, names)  # type: ignore[no-any-return]
    except (KeyError, ArithmeticError, ValueError) as error:
        where = f'"{ast.unparse(tree)}"'
        raise UsageError(f"the formula has no value ({error})", where=where) from error


def _check(node: ast.expr, levels: int) -> None:
    if levels == 0:
        raise ValueError(f"nested deeper than {_DEEPEST}")
    match node:
        case ast.Constant(value=int() | float() as value) if _is_number(value):
            return
        case ast.Name():
            return
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            children = [left, right]
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            children = [operand]
        case ast.BoolOp(_, values):
            children = values
        case ast.Compare(left, ops, comparators) if all(type(o) in _COMPARE for o in ops):
            children = [left, *comparators]
        case ast.Call(ast.Name(id=name), args, []) if name in _FUNCTIONS:
            if len(args) != _FUNCTIONS[name][0]:
                raise ValueError(f"{name} takes {_FUNCTIONS[name][0]} arguments")
            children = args
        case _:
            raise ValueError(f"'{ast.unparse(node)[:40]}' is outside the grammar")
    for child in children:
        _check(child, levels - 1)


def _is_number(value: float) -> bool:
    return not isinstance(value, bool) and storable(value)


def _value(node: ast.expr, names: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left, op, right):
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, names)
        case ast.UnaryOp(_, operand):
            return -_value(operand, names)
        case ast.BoolOp(op, values):
            truths = (bool(_value(value, names)) for value in values)
            return all(truths) if isinstance(op, ast.And) else any(truths)
        case ast.Compare(left, ops, comparators):
            sides = [_value(left, names), *(_value(item, names) for item in comparators)]
            return all(
                _COMPARE[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)
            )
        case ast.Call(ast.Name(id=name), args, _):
            return _FUNCTIONS[name][1](*(_value(arg, names) for arg in args))
    raise ValueError(ast.unparse(node))
