"""Every published system is run by a method that cites its paper, or says why none does."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from specplan.pages.published import Published, not_here, published
from specplan.planner.method import discover_methods
from tests.cli.test_program import specplan_here

METHODS = tuple(discover_methods().values())
FAMILIES = dict(A=12, B=20, C=6, D=11, E=7, F=5, G=9, H=4, I=5, J=7, K=4, L=5, M=10, N=19, O=6)
FAMILIES |= dict(P=1, Q=6)
"""How many systems each family has."""
OUTSIDE = {"J7", "N13", "N18", "N19", "O4", "Q5"}
"""Systems that no plan can state."""
LEDGER = Path(__file__).parents[1] / "ir/plans/ledger"


def test_a_system_has_a_method_or_a_reason() -> None:
    for one in published():
        assert bool(one.run_by(METHODS)) != bool(one.reason), one


def test_systems_are_listed_once_and_reasons_are_sentences() -> None:
    rows = published()
    assert Counter(one.id[0] for one in rows) == FAMILIES
    for key in ("id", "title", "paper"):
        values = [getattr(one, key) for one in rows]
        assert len(set(values)) == len(values), key
    for one in rows:
        assert re.fullmatch(r"\d{4}\.\d{5}|\S+/\S+|[A-Z]+ \d{4}", one.paper), one
        assert not one.reason or re.fullmatch(r"[A-Z].*[^.]\.", one.reason), one
        assert ". " not in one.reason, one
        assert not one.differs or re.fullmatch(r"[A-Z].*[^.]\.", one.differs), one
        assert not (one.differs and one.reason), one


def test_what_is_outside_the_language_has_no_plan_text() -> None:
    texts = {name for path in LEDGER.glob("*.plan") for name in re.findall(r"[A-Q]\d+", path.stem)}
    assert not texts & OUTSIDE
    reasons = {one.id: one.reason for one in published()}
    assert all(reasons[name] for name in OUTSIDE)


def test_the_command_gives_both() -> None:
    document: dict[str, Any] = json.loads(specplan_here("methods", "--json").stdout)
    runnable = {one["name"] for one in document["methods"] if one["runnable"]}
    papers = {p for one in document["methods"] if one["runnable"] for p in one["papers"]}
    assert runnable and document["not_here"] == not_here(METHODS)
    for one in document["not_here"]:
        assert one.keys() == {"paper", "title", "reason"} and one["reason"]
        assert one["paper"] not in papers
    assert {"papers", "differs"} <= document["methods"][0].keys()


def test_a_paper_that_is_no_arxiv_id_has_no_link() -> None:
    assert Published("X1", "One", "2211.17192").link.endswith("/abs/2211.17192)")
    assert Published("X2", "Two", "10.57967/hf/0638").link == "10.57967/hf/0638"
