"""Formulas: a closed grammar, walked and never run."""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate, formula_names, is_condition, parse_formula

OUTSIDE = [
    "", " ", "1 +", "a b", "a = 1", "a := 1", "lambda: 1", "a if b else c", "[1]", "(1, 2)", "{}",
    "a.b", "a[0]", "'text'", "b'x'", "f'{a}'", "True", "None", "...", "1j", "a ** 2", "a // 2",
    "a << 1", "a & 1", "a | 1", "a ^ 1", "a @ b", "~a", "+a", "a is b", "a in b", "a not in b",
    "print(1)", "eval(a)", "__import__(a)", "floor", "floor()", "floor(1, 2)", "min(1)",
    "where(1, 2)", "floor(x=1)", "min(*a)", "min(a, **b)", "abs(1)(2)", "(abs)(1)(1)", "a;b",
    "import os", "await a", "yield a", "not", "1e999", "9223372036854775808", "a" * 1001,
    "-" * 990 + "1", "(" * 300 + "1" + ")" * 300, "abs(" * 100 + "1" + ")" * 100, "\0",
    "a\nb", "1_0_", "0x",
]  # fmt: skip


@pytest.mark.parametrize("text", OUTSIDE)
def test_what_lies_outside_the_grammar_is_refused(text: str) -> None:
    if text == "floor":
        assert formula_names(text) == {"floor"}, "a name like any other when it is not called"
        return
    with pytest.raises(UsageError) as caught:
        parse_formula(text)
    assert caught.value.exit_code == 2
    if len(text) <= 1000:
        assert "floor, exp, log, abs, min, max, where" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7), ("7 % 4", 3), ("-2 - -3", 1), ("1 / 4", 0.25), ("floor(2.7)", 2),
        ("abs(-3)", 3), ("min(2, 3) + max(2, 3)", 5), ("exp(0)", 1.0), ("log(1)", 0.0),
        ("where(1 < 2, 10, 20)", 10), ("where(1 > 2, 10, 20)", 20), ("1 < 2 < 3", True),
        ("1 < 3 < 2", False), ("1 < 2 and 2 < 1", False), ("1 < 2 or 2 < 1", True),
        ("not 1 < 2", False), ("2 == 2.0", True), ("2 != 2", False), ("(1 <= 1) >= 1", True),
        ("0.9*b + 0.1*where(hit < 0.9*all, b + 0.01, b - 0.01)", 0.9 * 0.5 + 0.1 * 0.51),
    ],
)  # fmt: skip
def test_values(text: str, value: float) -> None:
    assert evaluate(text, {"b": 0.5, "hit": 1, "all": 4}) == pytest.approx(value)


def test_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    original = builtins.compile

    def watched(*args: Any, **names: Any) -> Any:
        if not names.get("flags", args[3] if len(args) > 3 else 0) & ast.PyCF_ONLY_AST:
            ran.append(args)
        return original(*args, **names)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "compile", watched)
        patch.setattr(builtins, "eval", ran.append)
        patch.setattr(builtins, "exec", ran.append)
        assert evaluate("floor(a * 2) + min(b, 1)", {"a": 1.3, "b": 2}) == 3
        for text in ("__import__('os')", "eval(a)", "(lambda: 1)()"):
            with pytest.raises(UsageError):
                evaluate(text, {"a": 1})
    assert ran == []


@pytest.mark.parametrize(
    "text", ["1 / 0", "1 % 0", "log(0)", "log(-1)", "exp(10000)", "floor(exp(700) * exp(700))", "c"]
)
def test_arithmetic_that_fails_says_so(text: str) -> None:
    with pytest.raises(UsageError, match="the formula has no value"):
        evaluate(text, {"a": 1})


def test_names_and_conditions() -> None:
    assert formula_names("min(a, floor(b_2)) + a < 3") == {"a", "b_2"}
    assert formula_names("2 + 2") == frozenset()
    assert formula_names("where(min < 2, 1, 2)") == {"min"}
    conditions = ["a < 1", "not a", "a < 1 and b > 2", "a == b"]
    numbers = ["a", "1", "a + 1", "-a", "where(a < 1, 2, 3)", "min(a, b)", "(a < 1) * 2"]
    assert all(map(is_condition, conditions)) and not any(map(is_condition, numbers))


BINARY: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "%": operator.mod,
}  # fmt: skip
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
Term = tuple[str, Callable[[dict[str, float]], float]]


def _binary(parts: tuple[Term, str, Term]) -> Term:
    (left, f), sign, (right, g) = parts
    do = {**BINARY, **COMPARE}[sign]
    return f"({left} {sign} {right})", lambda names: do(f(names), g(names))


def _call(parts: tuple[str, Term, Term]) -> Term:
    name, (left, f), (right, g) = parts
    do = {"min": min, "max": max}[name]
    return f"{name}({left}, {right})", lambda names: do(f(names), g(names))


def _where(parts: tuple[Term, Term, Term]) -> Term:
    (flag, f), (yes, g), (no, h) = parts

    def value(names: dict[str, float]) -> float:
        condition, first, second = f(names), g(names), h(names)
        return first if condition else second

    return f"where({flag}, {yes}, {no})", value


leaves: st.SearchStrategy[Term] = st.one_of(
    st.integers(-9, 9).map(lambda n: (str(n) if n >= 0 else f"({n})", lambda names: n)),
    st.floats(0, 9).map(lambda x: (repr(x), lambda names: x)),
    st.sampled_from("abc").map(lambda name: (name, lambda names: names[name])),
)
terms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([*BINARY, *COMPARE]), inner).map(_binary),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(_call),
        st.tuples(inner, inner, inner).map(_where),
        inner.map(lambda term: (f"(-{term[0]})", lambda names: -term[1](names))),
        inner.map(lambda term: (f"abs({term[0]})", lambda names: abs(term[1](names)))),
        inner.map(lambda term: (f"(not {term[0]})", lambda names: not term[1](names))),
        st.tuples(inner, inner).map(
            lambda two: (
                f"({two[0][0]} and {two[1][0]})",
                lambda names: bool(two[0][1](names)) and bool(two[1][1](names)),
            )
        ),
    ),
    max_leaves=12,
)
numbers = st.floats(-100, 100) | st.integers(-100, 100)


@settings(max_examples=300)
@given(terms, st.tuples(numbers, numbers, numbers))
def test_formulas_compute_what_python_does(term: Term, given_numbers: tuple[float, ...]) -> None:
    text, expected_of = term
    assume(len(text) <= 1000)
    names = dict(zip("abc", given_numbers, strict=True))
    try:
        expected = expected_of(names)
    except ZeroDivisionError:
        with pytest.raises(UsageError):
            evaluate(text, names)
        return
    computed = evaluate(text, names)
    assert computed == expected or (math.isnan(computed) and math.isnan(expected))
