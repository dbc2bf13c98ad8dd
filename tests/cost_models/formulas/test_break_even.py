"""Break-even points: solved, bracketed, and stated when there is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from specplan.cost_models.formulas.break_even import break_even, solve_for, stretches
from specplan.cost_models.formulas.formula import load_formulas
from specplan.ir.errors import UsageError
from tests.cost_models.chains import best_chain_length, chain_speedup

LEVIATHAN = load_formulas("leviathan")
GOODPUT: dict[str, Any] = {
    "target_context_seconds": 2e-8, "target_query_seconds": 0.12e-3,
    "target_step_seconds": 11e-3, "draft_context_seconds": 3e-9,
    "draft_query_seconds": 0.008e-3, "draft_step_seconds": 1.2e-3, "context": 512,
    "acceptance": 0.7,
}  # fmt: skip


def test_draft_latency_of_decoding_speculative_decoding() -> None:
    """1.5 times as fast with t_v = 42 ms and t_t = 40 ms needs draft steps of at most 7.6 ms."""
    formulas = load_formulas("decoding_speculative_decoding")
    known = {"tokens": 3.0, "length": 5, "verify_seconds": 0.042, "target_seconds": 0.040}
    point = break_even(formulas, "draft_seconds", bound=1.5, **known)
    assert point.edges == pytest.approx((0.0076,)) and point.pays[0][0] == 0.0
    assert point.edges[0] == pytest.approx(
        formulas.value("required_draft_seconds", wanted_speedup=1.5, **known)
    )
    solved = solve_for(formulas, "draft_seconds", bound=1.5)
    wanted = formulas.variable("wanted_speedup").symbol
    stated = formulas.formula("required_draft_seconds").expression.subs(
        wanted, sympy.Rational(3, 2)
    )
    assert sympy.simplify(solved - stated) == 0


@given(st.floats(0.05, 0.95), st.integers(1, 20))
def test_draft_cost_is_solved_exactly(alpha: float, gamma: int) -> None:
    point = break_even(LEVIATHAN, "draft_cost", acceptance=alpha, length=gamma)
    assert point.solution is not None and len(point.edges) == 1
    assert chain_speedup(alpha, gamma, point.edges[0]) == pytest.approx(1.0, abs=1e-9)


@given(st.integers(1, 20), st.floats(0.02, 0.9))
def test_acceptance_is_bracketed(gamma: int, cost: float) -> None:
    point = break_even(LEVIATHAN, "acceptance", length=gamma, draft_cost=cost)
    assert point.solution is None or gamma == 1
    assert len(point.edges) == 1 and point.pays[0][1] == 1.0
    assert chain_speedup(point.edges[0], gamma, cost) == pytest.approx(1.0, abs=1e-9)
    if gamma == 1:
        assert point.edges[0] == pytest.approx(cost)  # corollary 3.9


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.9))
def test_length_is_a_whole_number(alpha: float, cost: float) -> None:
    assume(abs(alpha - cost) > 1e-9)
    point = break_even(LEVIATHAN, "length", acceptance=alpha, draft_cost=cost)
    if best_chain_length(alpha, cost) == 0:
        assert point.never and "never pays" in str(point)
    else:
        ((least, most),) = point.pays
        assert least == 1.0 and most == int(most)
        assert chain_speedup(alpha, int(most), cost) > 1.0
        assert chain_speedup(alpha, int(most) + 1, cost) <= 1.0


def test_what_always_or_never_pays_is_said() -> None:
    never = break_even(LEVIATHAN, "acceptance", length=2, draft_cost=1.2)
    assert never.never and never.edges == () and str(never).startswith("never pays")
    always = break_even(
        load_formulas("round_time"),
        "target_seconds",
        tokens=2.0,
        round_seconds=1.0,
        low=0.6,
        high=2.0,
    )
    assert always.always and always.edges == () and str(always).startswith("always pays")


def test_batch_at_which_speculation_stops_paying() -> None:
    """SmartSpec's example: three tokens are a slowdown at batch 128, one token is not."""
    formulas = load_formulas("goodput")
    known = {k: v for k, v in GOODPUT.items()}
    edges = [break_even(formulas, "batch", length=k, **known).edges for k in (1, 2, 3, 4)]
    assert edges[0][0] > 128 > edges[2][0] and edges == sorted(edges, reverse=True)
    for k, (edge,) in enumerate(edges, start=1):
        assert formulas.value("speedup", batch=edge, length=k, **known) > 1.0
        assert formulas.value("speedup", batch=edge + 1, length=k, **known) <= 1.0


def test_context_above_which_speculation_pays() -> None:
    """MagicDec: with a large batch it pays from some context on, and more with ever more."""
    formulas = load_formulas("magicdec")
    model = {
        "tokens": 2.2, "length": 2, "parameters": 6.6e9, "weight_bytes": 13.2e9,
        "kv_bytes": 524288, "draft_weight_bytes": 2.2e9, "draft_kv_bytes": 45056,
        "draft_budget": 256, "bandwidth": 1.7e12, "flops": 2.2e14, "step_seconds": 1e-3,
        "draft_step_seconds": 1e-3, "glue_seconds": 1e-3, "batch": 256,
    }  # fmt: skip
    point = break_even(formulas, "context", **model)
    ((low, high),) = point.pays
    assert 100 < low < formulas.value("balance_context", **model) < high == point.high
    assert formulas.value("speedup", context=10**9, **model) == pytest.approx(2.2, rel=1e-3)


def test_load_at_which_a_busier_plan_stops_paying() -> None:
    """Shorter alone, but slower by every further request: solved, since it is linear."""
    formulas = load_formulas("loaded_server")
    known = {"idle_seconds": 2.0, "slope_seconds": 0.3, "plain_idle_seconds": 3.0,
             "plain_slope_seconds": 0.2}  # fmt: skip
    point = break_even(formulas, "load", high=3.3, **known)
    assert point.solution is not None and point.pays == ((0.0, pytest.approx(2.0)),)


@given(st.floats(0.1, 20.0), st.floats(0.5, 20.0))
def test_stretches_of_a_bump(a: float, width: float) -> None:
    """Both edges of a hill that is wider than the grid."""
    found = stretches(lambda x: (x - a) * (a + width - x), 0.0, 45.0)
    assert len(found) == 1
    assert found[0] == (pytest.approx(a, rel=1e-9), pytest.approx(a + width, rel=1e-9))


def test_values_that_are_not_finite_do_not_pay() -> None:
    found = stretches(lambda x: 1.0 if x < 0.5 else math.nan, 0.0, 1.0)
    assert found[0][0] == 0.0 and found[0][1] == pytest.approx(0.5, abs=0.01)


def test_what_cannot_be_solved_for_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be solved for 'draft_operations'"):
        break_even(LEVIATHAN, "draft_operations", acceptance=0.5, length=2, draft_cost=0.1)
    with pytest.raises(UsageError, match="cannot be solved for 'hazards'"):
        break_even(load_formulas("positions"), "hazards", length=2, draft_cost=0.1)
    with pytest.raises(UsageError, match="no variable 'alpha'"):
        break_even(LEVIATHAN, "alpha", length=2, draft_cost=0.1)
