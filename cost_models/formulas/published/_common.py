"""Variables that several laws share, and the sum that most of them begin with."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Expression, Variable


def number(
    name: str,
    symbol: str,
    meaning: str,
    unit: str = "",
    *,
    low: float = 0.0,
    high: float = 1e9,
) -> Variable:
    """A variable of real, non-negative values."""
    made = sympy.Symbol(symbol, nonnegative=True)
    return Variable(name, made, meaning, unit, low=low, high=high)


def count(
    name: str, symbol: str, meaning: str, unit: str = "", *, low: float = 0, high: float = 1e6
) -> Variable:
    """A variable of whole values."""
    made = sympy.Symbol(symbol, integer=True, nonnegative=True)
    return Variable(name, made, meaning, unit, low=low, high=high, whole=True)


def sequence(name: str, symbol: str, meaning: str, unit: str = "") -> Variable:
    """A variable with a value per position, counted from 1."""
    made = sympy.IndexedBase(symbol, nonnegative=True)
    return Variable(name, made, meaning, unit, sequence=True)


ACCEPTANCE = number(
    "acceptance", "alpha", "probability that one drafted token is accepted", high=1.0
)
LENGTH = count("length", "gamma", "drafted tokens per round", "tokens", high=1024)
DRAFT_COST = number("draft_cost", "c", "time of a draft step in target steps", high=100.0)
TOKENS = number("tokens", "E", "tokens per round, the bonus included", "tokens", low=1.0, high=1e3)
DRAFT_SECONDS = number("draft_seconds", "t_d", "time of one draft step", "s", high=1e3)
TARGET_SECONDS = number("target_seconds", "t_t", "time of a target step of one token", "s")
VERIFY_SECONDS = number("verify_seconds", "t_v", "time of the target's verification", "s")
BATCH = count("batch", "B", "requests that run together", "requests", low=1, high=65536)
CONTEXT = count("context", "s", "tokens of text per request", "tokens", high=10_000_000)


def chain_tokens(alpha: Expression, gamma: Expression) -> Expression:
    """1 + alpha + ... + alpha^gamma, summed up."""
    summed = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    return sympy.Piecewise((gamma + 1, sympy.Eq(alpha, 1)), (summed, True))


def path_products(base: Expression, length: Expression) -> Expression:
    """a_1 + a_1 a_2 + ... + a_1 ... a_length."""
    i, j = sympy.symbols("i j", integer=True)
    return sympy.Sum(sympy.Product(base[j], (j, 1, i)), (i, 1, length))
