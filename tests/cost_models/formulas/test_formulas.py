"""Formulas as objects: found, evaluated, printed, and equal to the plain functions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.formulas.closed_forms import (
    expected_tokens,
    tree_value,
)
from specplan.cost_models.formulas.formula import FormulaSet, list_formulas, load_formulas
from specplan.cost_models.formulas.grammar import parse_expression
from specplan.ir.errors import UsageError
from specplan.pages.formulas import formulas_markdown, formulas_page, formulas_text
from tests.cost_models.chains import chain_speedup
from tests.cost_models.small_trees import expansion, independent_chains

REPOSITORY = Path(__file__).resolve().parents[3]
SETS = list_formulas()


@pytest.mark.parametrize("formulas", SETS, ids=lambda formulas: formulas.name)
def test_every_set_is_whole(formulas: FormulaSet) -> None:
    """Every symbol is a variable, every variable is used, every formula has a finite value."""
    used = set()
    for formula in formulas.formulas:
        needed = formulas.needs(formula.name)
        used |= {variable.name for variable in needed}
        known = {v.symbol.label if v.sequence else v.symbol for v in needed}
        bare = {s for s in formula.expression.free_symbols if type(s) is sympy.Symbol}
        assert bare == known
        values = {
            v.name: [0.4, 0.3] if v.sequence else min(max(v.low, 2.0 if v.whole else 0.7), v.high)
            for v in needed
        }
        assert np.isfinite(formulas.value(formula.name, **values))
    assert used == {variable.name for variable in formulas.variables}
    assert len({f.name for f in formulas.formulas}) == len(formulas.formulas)
    assert formulas.source and formulas.validity and load_formulas(formulas.name) is formulas


@pytest.mark.parametrize("formulas", SETS, ids=lambda formulas: formulas.name)
def test_every_set_prints(formulas: FormulaSet) -> None:
    text, page = formulas_text(formulas), formulas_markdown(formulas)
    for words in (formulas.title, formulas.source, *formulas.validity, *formulas.mistakes_in_words):
        assert words in text and words[1:] in page
    for variable in formulas.variables:
        assert f" {variable.name}" in text and f"`{variable.name}`" in page
    assert "Max(" not in text and "Min(" not in text


def test_the_page_is_the_formulas() -> None:
    page = (REPOSITORY / "docs/laws.md").read_text(encoding="utf-8")
    assert page == formulas_page(SETS), "run: specplan laws --markdown > docs/laws.md"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"there are no formulas of 'leviatan'.*Known: .*leviathan"
    ):
        load_formulas("leviatan")
    formulas = load_formulas("Decoding Speculative-Decoding")
    with pytest.raises(UsageError, match=r"no formula 'speed'.*There are: speedup"):
        formulas.value("speed")
    with pytest.raises(UsageError, match="no value is given for target_seconds"):
        formulas.value("speedup", tokens=2.0, length=2, draft_seconds=0.1, verify_seconds=1.0)


def test_formulas_cost_nothing_until_one_is_asked_for() -> None:
    """Pricing and the search load no sympy; neither do their names."""
    probe = (
        "import sys, specplan.planner.search.search, specplan.cost_models.estimate\n"
        "from specplan.cost_models.formulas.formula import published_names, load_formulas\n"
        "assert 'leviathan' in published_names() and 'sympy' not in sys.modules\n"
        "load_formulas('leviathan')\n"
        "assert 'sympy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", probe], check=True, cwd=REPOSITORY)


WORDS_OF_OTHERS = {"draft_sources", "drafter_configs", "eagle", "own_modules", "reading"}
"""Words of problem files and of drafters' config files."""


def test_cost_models_name_no_method_of_the_planner() -> None:
    """Formulas, which bear the names of papers, are data."""
    methods = {p.stem for p in (REPOSITORY / "planner/methods").glob("*.py")} - {"__init__"}
    pattern = re.compile(rf"[\"'](?:{'|'.join(sorted(methods))})[\"']")
    rooms = (REPOSITORY / "cost_models").rglob("*.py")
    files = [p for p in rooms if p.stem not in WORDS_OF_OTHERS]
    assert [str(p) for p in files if pattern.search(p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    ("x + y.z", "x if x else x", "open(x)", "sum(x, 2, 0, x)", "cases(x, x)", "'x'", "lambda: x"),
)
def test_what_is_outside_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="outside the grammar"):
        parse_expression(text, sympy.Symbol)


ALPHAS = st.floats(0.0, 0.999)


@given(ALPHAS, st.integers(0, 40), st.floats(0.0, 2.0))
def test_closed_forms_are_leviathans_expressions(alpha: float, gamma: int, cost: float) -> None:
    formulas = load_formulas("leviathan")
    known = {"acceptance": alpha, "length": gamma, "draft_cost": cost, "draft_operations": cost}
    for formula, value in (
        ("tokens", expected_tokens(alpha, gamma)),
        ("speedup", chain_speedup(alpha, gamma, cost)),
    ):
        assert formulas.value(formula, **known) == pytest.approx(value, rel=1e-9)


def test_closed_forms_at_their_limits() -> None:
    formulas = load_formulas("leviathan")
    for alpha, gamma in ((1.0, 5), (1.0, 0), (0.0, 5), (0.0, 0)):
        value = formulas.value("tokens", acceptance=alpha, length=gamma)
        assert value == expected_tokens(alpha, gamma)


def test_arrays_broadcast() -> None:
    alphas = np.array([[0.0, 0.5, 1.0]]).T
    speedups = load_formulas("leviathan").value(
        "speedup", acceptance=alphas, length=4, draft_cost=[0.1, 0.2]
    )
    expected = [[chain_speedup(a, 4, c) for c in (0.1, 0.2)] for a in (0.0, 0.5, 1.0)]
    assert speedups.shape == (3, 2) and speedups == pytest.approx(np.array(expected))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_tree_value_of_a_chain_is_the_formula_of_positions(hazards: list[float]) -> None:
    chain = expansion(*[1] * len(hazards))
    value = tree_value(*chain, lambda depth, rank: hazards[depth - 1])
    formulas = load_formulas("positions")
    assert formulas.value("tokens", hazards=hazards, length=len(hazards)) == pytest.approx(value)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 5))
def test_tree_values_are_the_formulas_of_trees(widths: list[int], chains: int, depth: int) -> None:
    p = (0.6, 0.2, 0.1)
    tree = expansion(*widths)
    any_of = [sum(p[:width]) for width in widths]
    specinfer = load_formulas("specinfer")
    value = tree_value(*tree, lambda depth, rank: p[rank])
    assert specinfer.value("tokens", any_acceptances=any_of, depth=len(widths)) == pytest.approx(
        value
    )
    assert specinfer.value("nodes", widths=widths, depth=len(widths)) == len(tree[0]) + 1
    value = tree_value(*independent_chains(chains, depth), lambda depth, rank: p[rank])
    known = {"first_acceptance": p[0], "any_acceptance": sum(p[:chains]), "depth": depth}
    assert load_formulas("sequoia").value("tokens_of_chains", **known) == pytest.approx(value)
