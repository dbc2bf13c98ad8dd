"""Where something stops paying: exact where an equation can be solved, else a bracketed root."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from specplan.cost_models.formulas.formula import Expression, FormulaSet, Variable
from specplan.ir.errors import UsageError

Range = tuple[float, float]
POINTS = 257


@dataclass(frozen=True)
class BreakEven:
    """Where a formula is above a bound, along one of its variables.

    Attributes:
        unknown: the variable.
        low: least value looked at.
        high: largest value looked at.
        pays: closed stretches of values where it does, in order.
        solution: the edge as an expression in the other variables' symbols; None where the
            equation has no closed solution.
    """

    unknown: Variable
    low: float
    high: float
    pays: tuple[Range, ...]
    solution: Expression | None = None

    @property
    def always(self) -> bool:
        """It pays at every value looked at."""
        return self.pays == ((self.low, self.high),)

    @property
    def never(self) -> bool:
        """It pays at none."""
        return not self.pays

    @property
    def edges(self) -> tuple[float, ...]:
        """The values between paying and not paying, in order."""
        flat = (edge for stretch in self.pays for edge in stretch)
        return tuple(edge for edge in flat if edge not in (self.low, self.high))

    def __str__(self) -> str:
        name = self.unknown.name.replace("_", " ")
        unit = f" {self.unknown.unit}" if self.unknown.unit else ""
        if self.always:
            return f"always pays ({name} {self.low:.4g} to {self.high:.4g}{unit})"
        if self.never:
            return f"never pays ({name} {self.low:.4g} to {self.high:.4g}{unit})"
        parts = []
        for low, high in self.pays:
            if high >= self.high:
                parts.append(f"from {low:.4g}{unit} up")
            elif low <= self.low:
                parts.append(f"up to {high:.4g}{unit}")
            else:
                parts.append(f"from {low:.4g} to {high:.4g}{unit}")
        return f"pays at a {name} {' and '.join(parts)}"


def break_even(
    formulas: FormulaSet,
    unknown: str,
    *,
    formula: str = "speedup",
    bound: float = 1.0,
    low: float | None = None,
    high: float | None = None,
    **known: Any,
) -> BreakEven:
    """Where a formula exceeds a bound, along one variable.

    Args:
        formulas: holds the formula.
        unknown: the variable to solve for; no sequence.
        formula: its name.
        bound: what it must exceed.
        low: least value to look at; the variable's own where not given.
        high: largest value to look at; the variable's own where not given.
        known: a value of every other variable that the formula needs.

    Raises:
        UsageError: a name is unknown, a value is missing, or the formula does not depend on the
            unknown.
    """
    variable = formulas.variable(unknown)
    if variable.sequence or variable not in formulas.needs(formula):
        raise UsageError(
            f"the formula {formula!r} cannot be solved for {unknown!r}",
            where=f"formulas {formulas.name}",
            remedy=f"It depends on {', '.join(v.name for v in formulas.needs(formula))}.",
        )
    least = variable.low if low is None else low
    most = variable.high if high is None else high
    solution = solve_for(formulas, unknown, formula=formula, bound=bound)

    def excess(x: float) -> float:
        return float(formulas.value(formula, **known, **{unknown: x})) - bound

    exact: tuple[float, ...] = ()
    if solution is not None and not variable.whole:
        root = formulas.value(solution, **known)
        exact = (root,) if least < root < most else ()
    pays = stretches(excess, least, most, whole=variable.whole, exact=exact)
    return BreakEven(variable, least, most, pays, solution)


@cache
def solve_for(
    formulas: FormulaSet, unknown: str, *, formula: str = "speedup", bound: float = 1.0
) -> Expression | None:
    """The value of a variable at which a formula equals a bound, in the other symbols.

    Returns:
        An expression; None where the equation is not linear in the variable.

    Raises:
        UsageError: a name is unknown.
    """
    import sympy

    symbol = formulas.variable(unknown).symbol
    expression = formulas.formula(formula).expression
    if expression.has(sympy.Max, sympy.Min, sympy.Sum) and any(
        part.has(symbol) for part in expression.atoms(sympy.Max, sympy.Min, sympy.Sum)
    ):
        return None
    top = sympy.fraction(sympy.together(expression - sympy.nsimplify(bound)))[0]
    slope = sympy.diff(top, symbol)
    if slope.has(symbol) or slope.is_zero:
        return None
    return sympy.simplify(-top.subs(symbol, 0) / slope)


def stretches(
    excess: Callable[[float], float],
    low: float,
    high: float,
    *,
    whole: bool = False,
    points: int = POINTS,
    tolerance: float = 1e-12,
    exact: tuple[float, ...] = (),
) -> tuple[Range, ...]:
    """Where a function is positive; changes of sign between two grid points may be missed.

    Args:
        excess: finite at the values that matter; others count as not positive.
        low: least value, >= 0.
        high: largest value.
        whole: look at whole numbers only; edges are then the last whole values where it holds.
        points: size of the grid, about.
        tolerance: relative width at which an edge is taken as found.
        exact: edges that are known already.

    Returns:
        Closed stretches in order.
    """
    grid = _grid(low, high, points, whole, exact)
    holds = [_positive(excess, x) for x in grid]
    positive: list[Range] = []
    start = grid[0] if holds[0] else None
    for (left, before), (right, after) in pairwise(zip(grid, holds, strict=True)):
        if before == after:
            continue
        known = [edge for edge in exact if left <= edge <= right]
        inside = known[0] if known else _edge(excess, left, right, after, whole, tolerance)
        if after:
            start = inside
        else:
            assert start is not None
            positive.append((start, inside))
            start = None
    if start is not None:
        positive.append((start, grid[-1]))
    return tuple(positive)


def _grid(
    low: float, high: float, points: int, whole: bool, exact: tuple[float, ...]
) -> list[float]:
    """Even steps and even ratios, half of the points each; either side of exact edges."""
    half = points // 2
    first = low if low > 0.0 else (1.0 if whole else high * 1e-12)
    ratio = (high / first) ** (1.0 / half)
    step = (high - low) / half
    grid = [low, high]
    grid += [first * ratio**i for i in range(half)] + [low + step * i for i in range(1, half)]
    if whole:
        return [float(x) for x in sorted({round(x) for x in grid if low <= round(x) <= high})]
    sides = [edge * (1.0 + side) for edge in exact for side in (-1e-9, 1e-9)]
    return sorted({x for x in (*grid, *sides) if low <= x <= high})


def _positive(excess: Callable[[float], float], x: float) -> bool:
    value = excess(x)
    return math.isfinite(value) and value > 0.0


def _edge(
    excess: Callable[[float], float],
    left: float,
    right: float,
    rising: bool,
    whole: bool,
    tolerance: float,
) -> float:
    """The edge between two values of different sign; on the positive side if whole."""
    if whole:
        while right - left > 1:
            middle = float((left + right) // 2)
            if _positive(excess, middle) == rising:
                right = middle
            else:
                left = middle
        return right if rising else left
    from scipy.optimize import brentq

    if not (math.isfinite(excess(left)) and math.isfinite(excess(right))):
        return right if rising else left
    return float(brentq(excess, left, right, xtol=1e-300, rtol=max(tolerance, 1e-15)))
