"""What drafting would gain by acceptance: the same answers as searches with that acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import InfeasibleError, UsageError
from specplan.planner.explain.what_if_words import table_lines
from specplan.planner.search.search import search
from specplan.planner.search.settings import check_named_methods
from specplan.planner.search.what_if import ACCEPTANCES, WhatIfRow, what_if
from tests.planner.example_facts import SEVEN_BILLION, example_facts


def test_nothing_known_is_undecided_and_says_what_drafting_would_gain(tmp_path: Path) -> None:
    answer = search(example_facts(tmp_path, given={}))
    assert answer.undecided == ("draft",) and answer.chosen is answer.plain
    assert [(row.batch, row.acceptance) for row in answer.what_if] == [
        (batch, acceptance) for batch in (1, 4) for acceptance in ACCEPTANCES
    ]
    for batch in (1, 4):
        rows = [row for row in answer.what_if if row.batch == batch]
        gains = [row.gain for row in rows]
        assert gains == sorted(gains) and len({row.pays_from for row in rows}) == 1


@pytest.mark.parametrize("acceptance", [0.5, 0.8])
def test_a_row_is_what_a_search_with_that_acceptance_finds(
    tmp_path: Path, acceptance: float
) -> None:
    unknown = example_facts(tmp_path, given={})
    rows = {row.batch: row for row in what_if(unknown, [Model("draft")], [acceptance])}
    profile = AcceptanceProfile.from_hazards([[acceptance]], drafter=Model("draft"))
    given = {Model("draft"): profile}
    known = search(example_facts(tmp_path, given=given, methods=["draft_model"]))
    for best, estimate in zip(known.best_of_each, known.plain.estimates, strict=True):
        row = rows[estimate.batch]
        assert best is not None and best.words == row.words
        cell = known.plain.estimates.index(estimate)
        gain = estimate.request_seconds.median / best.estimates[cell].request_seconds.median
        assert row.gain == pytest.approx(gain)


def test_drafting_pays_from_where_the_search_turns_to_it(tmp_path: Path) -> None:
    unknown = example_facts(tmp_path, given={})
    pays = next(row.pays_from for row in what_if(unknown, [Model("draft")]) if row.batch == 4)
    assert pays is not None
    for acceptance, drafts in ((pays - 0.03, False), (pays + 0.03, True)):
        rows = what_if(unknown, [Model("draft")], [acceptance])
        assert [bool(row.draft_tokens) for row in rows if row.batch == 4] == [drafts]


def test_a_draft_as_slow_as_the_target_never_pays(tmp_path: Path) -> None:
    answer = search(example_facts(tmp_path, given={}, draft=SEVEN_BILLION))
    assert {(row.draft_tokens, row.gain, row.pays_from) for row in answer.what_if} == {
        (0, 1.0, None)
    }


def test_methods_that_leave_the_drafter_out_are_decided(tmp_path: Path) -> None:
    assert not search(example_facts(tmp_path, given={}, methods=["autoregressive"])).undecided
    assert not search(example_facts(tmp_path)).undecided


def test_a_limit_that_only_drafting_could_keep_is_undecided(tmp_path: Path) -> None:
    plain = search(example_facts(tmp_path)).plain
    tpot = 0.8 * max(one.seconds_per_token.median for one in plain.estimates)
    assert search(example_facts(tmp_path, given={}, limits={"tpot": tpot})).undecided
    with pytest.raises(InfeasibleError):
        search(example_facts(tmp_path, given={}, limits={"tpot": tpot / 1e3}))


def test_the_table_has_a_line_per_load_and_a_column_per_acceptance() -> None:
    rows = [
        WhatIfRow(
            "eagle", batch, 1024, acceptance, tokens, gain, Interval.exact(gain), pays, ""
        ).as_dict()
        for batch, pays in ((1, 0.11), (256, None))
        for acceptance, tokens, gain in ((0.5, 4, 1.56), (0.6, 0, 1.0))
    ]
    assert list(table_lines(rows)) == [
        "  drafter  batch  pays from       0.5  0.6",
        "  eagle        1       0.11  1.56x K4    -",
        "  eagle      256      never  1.56x K4    -",
    ]


@pytest.mark.parametrize(
    ("hazards", "reason"),
    [([[0.7]], "is known for first choices only"), ([[0.7, 0.0]], "no second choice of")],
)
def test_data_without_second_choices_does_not_say_that_none_is_accepted(
    tmp_path: Path, hazards: list[list[float]], reason: str
) -> None:
    profile = AcceptanceProfile.from_hazards(hazards, drafter=Model("draft"), trials=100)
    answer = search(example_facts(tmp_path, given={Model("draft"): profile}))
    trees = [c for c in answer.candidates if c.family == "static tree by draft"]
    assert reason in str(trees[0].refusal)


def test_a_method_asked_for_by_name_that_cannot_be_tried_is_an_error(tmp_path: Path) -> None:
    check_named_methods(example_facts(tmp_path, methods=["draft_model"]))
    check_named_methods(example_facts(tmp_path, given={}, methods=["draft_model"]))
    facts = example_facts(tmp_path, methods=["draft_model", "eagle3"])
    with pytest.raises(UsageError, match=r'methods\.1: "eagle3" cannot be tried: .*EAGLE-3 head'):
        check_named_methods(facts)
