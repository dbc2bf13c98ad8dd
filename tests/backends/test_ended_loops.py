"""Rounds whose loops end by request, as one graph: the interpreter's tokens, numbers and errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC, UNCOMPILED
from specplan.backends.static.traced.formulas import Formula
from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate, is_condition
from specplan.ir.plan import Plan, ValueState
from specplan.ir.text.parser import parse_plan
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.kinds import ended_kinds
from tests.backends.pairs import load_pair, save_pair
from tests.plan_texts import drafted


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    """A pair that is surer of its tokens than others: bars differ in what they let through."""
    folder = tmp_path_factory.mktemp("sure")
    save_pair(folder, scale=0.45, layers=2)
    return load_pair(folder)


def requests_of(temperature: float) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((7 * i * i + seed) % 61 for i in range(1 + 5 * seed)),
            max_new_tokens=4 + 2 * seed,
            temperature=temperature,
            stop_tokens=(11, 40) if seed % 2 else (),
            seed=seed,
        )
        for seed in range(4)
    ]


def side_by_side(
    plan: Plan, models: dict[str, CausalModel], requests: Sequence[Request]
) -> list[list[int]]:
    """Run a batch by the interpreter and as graphs, in step; the trips of the rounds."""
    known = EagerBackend().compile(plan, models).start(requests)
    graphs = StaticExecutable(plan, models).start(requests)
    numbers = [state.name for state in plan.states if isinstance(state, ValueState)]
    trips = []
    known.prefill()
    graphs.prefill()
    while not all(known.done):
        expected, graph_step = known.step("decode"), graphs.step("decode")
        assert graph_step.tokens == expected.tokens
        assert graphs.lengths == known.lengths and graphs.done == known.done
        for name in numbers:
            (left,), interpreted = graphs.values[name], known.batch.values[name]
            going = ~torch.tensor(known.done)
            assert isinstance(interpreted, torch.Tensor)
            torch.testing.assert_close(left[going], interpreted[going], rtol=1e-12, atol=0)
        assert expected.trips is not None
        trips.append(expected.trips[:, 0].tolist())
    return trips


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.long), 0.8])
def test_every_kind_runs_as_the_interpreter_does(
    models: dict[str, CausalModel], tmp_path: Path, temperature: float
) -> None:
    """Bars on the last token, on all so far, on entropy, on what a layer adds; chance."""
    requests, kinds = requests_of(temperature), dict(ended_kinds(tmp_path, temperature, layers=2))
    assert len(kinds) >= 10
    for name, plan in kinds.items():
        assert STATIC.refusals(plan) == (), name
        assert any("stop early" in one.reason for one in UNCOMPILED.refusals(plan)), name
        trips = side_by_side(plan, models, requests)
        assert any(len(set(row)) > 1 for row in trips), name
        if temperature:
            side_by_side(plan, models, requests[-1:])


GUARDED = drafted(
    """
  %t0 = root
  %x = load @left
  %c = repeat 3 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q
    %count = measure %n count
    %stop = compute "INSIDE" x=%x n=%count
    yield %n until=%stop
  }
""",
    head="state @left = value number(init=FIRST)\n",
    after='  %y = compute "AFTER" x=%x\n  store @left %y\n',
)


def guarded(first: float, inside: str = "n < 0 * x", after: str = "x") -> Plan:
    text = GUARDED.replace("FIRST", str(first)).replace("INSIDE", inside)
    return parse_plan(text.replace("AFTER", after))


@pytest.mark.parametrize(
    "plan",
    [guarded(2.0, after="1/(x - 1)"), guarded(0.0, inside="n > 3 or 1 % x > 0")],
    ids=["after it", "in the loop"],
)
def test_a_formula_without_a_value_is_reported(plan: Plan, models: dict[str, CausalModel]) -> None:
    for kind in (EagerBackend().compile, StaticExecutable):
        session = kind(plan, models).start(requests_of(0.0)[1:3])
        session.prefill()
        with pytest.raises(UsageError, match="the formula has no value") as error:
            for _ in range(3):
                session.step("decode")
        assert '"1' in str(error.value) or '"n > 3' in str(error.value)


def test_who_has_stopped_or_is_done_needs_no_value(models: dict[str, CausalModel]) -> None:
    """After two trips the formula has none; the loop ends with the second, for who is alone."""
    plan, requests = guarded(0.0, inside="1/(3 - n) > 0.9 + x"), requests_of(0.0)[:1]
    side_by_side(plan, models, requests)
    session = StaticExecutable(plan, models).start(requests)
    session.prefill()
    while not session.done[0]:
        session.step("decode")


def test_formulas_need_no_value_for_who_is_done_while_others_go_on(
    models: dict[str, CausalModel],
) -> None:
    """Nothing is drafted for who is done: its count is 0, which has no inverse."""
    trips = side_by_side(guarded(0.0, inside="1/n > 2 + x"), models, requests_of(0.0))
    assert any(0 in row and max(row) > 0 for row in trips)


@pytest.mark.parametrize("rule", ["naive", "gumbel"])
def test_rules_that_draw_by_place_do_so_whoever_is_in_the_batch(
    rule: str, models: dict[str, CausalModel]
) -> None:
    plan = parse_plan(
        GUARDED.replace("FIRST", "0.0")
        .replace("%count = measure %n count", "%count = measure %q top1")
        .replace("INSIDE", "n < 0.5 + x")
        .replace("AFTER", "x")
        .replace("target=%l", f"target=%l rule={rule} by=%v")
        .replace("  %a = accept", "  %v = uniform 4 stream=accept\n  %a = accept")
    )
    requests = requests_of(0.8)
    trips = side_by_side(plan, models, requests)
    assert any(len(set(row)) > 1 for row in trips)
    for request in requests:
        side_by_side(plan, models, [request])


OPERANDS = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])


TEMPLATES = (
    "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} % {})", "({} < {})", "({} == {})",
    "(0 < {} <= {})", "(({} > 0) and ({} < 1))", "(({} > 0) or ({} >= 1) or ({} != 2))",
    "min({}, {})", "max({}, {})", "where({} > 0, {}, {})", "floor({})", "abs(-{})", "(not {})",
)  # fmt: skip
FORMULAS = st.recursive(
    st.sampled_from(["a", "b", "0", "1", "2.5"]),
    lambda inner: st.builds(str.format, st.sampled_from(TEMPLATES), inner, inner, inner),
    max_leaves=5,
)


@given(text=FORMULAS, a=st.lists(OPERANDS, min_size=3, max_size=3), b=OPERANDS)
@settings(max_examples=100, deadline=None)
def test_formulas_of_all_requests_at_once(text: str, a: list[float], b: float) -> None:
    names = {"a": torch.tensor(a, dtype=torch.float64), "b": torch.full((3,), b).double()}
    compare(text, names)


@pytest.mark.parametrize("text", ["exp(a)", "log(a)", "log(a) < 2 and exp(a) > 1", "exp(710) + a"])
def test_formulas_of_powers(text: str) -> None:
    compare(text, {"a": torch.tensor([-1.0, 0.0, 2.0, 709.7, 709.8], dtype=torch.float64)})


def compare(text: str, names: dict[str, Tensor]) -> None:
    """Request by request with the interpreter's: same value and kind, or both have none."""
    formula = Formula(next(iter(names.values())))
    values = formula.of(text, names)
    assert values.dtype == (torch.bool if is_condition(text) else torch.float64)
    failed = torch.zeros_like(values).bool() if formula.failed is None else formula.failed
    for row, value in enumerate(values.tolist()):
        try:
            expected = evaluate(
                text, {name: float(columns[row]) for name, columns in names.items()}
            )
        except UsageError:
            assert failed[row], (text, row)
        else:
            assert not failed[row] and value == pytest.approx(float(expected), nan_ok=True), (
                text,
                row,
            )
