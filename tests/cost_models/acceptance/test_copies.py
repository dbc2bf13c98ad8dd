"""Copies after matches of several lengths: what is replayed, priced, and what really runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from specplan.backends.static.executable import StaticExecutable
from specplan.cost_models.acceptance.drafters import TEXT
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.evidence.copies import Copies
from specplan.cost_models.acceptance.evidence.lengths import NOTHING
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.matching import outcomes_of
from specplan.measure.acceptance.teacher import copies_along
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.pairs import counting, load_pair, plain, run, save_pair
from tests.plan_texts import TWO_LENGTHS, drafted

PLAN = parse_plan(drafted(TWO_LENGTHS, draft=False))
KEY = AcceptanceKey(TEXT, how="given", match=(1, 6))
ROWS = (((2, 3), (5, 2), (0, 0), (1, 9), (0, 0), (3, 1), (0, 0)),)


def test_rounds_by_hand(tmp_path: Path) -> None:
    """Rounds begin at 0 (3 of 6 tokens), 4 (no match) and 5 (1 of 6)."""
    AcceptanceProfile(KEY, Copies(6, 9, ROWS)).save(tmp_path / "profile.json")
    trace = AcceptanceProfile.load(tmp_path / "profile.json").evidence
    assert isinstance(trace, Copies) and trace == Copies(6, 9, ROWS)
    assert trace.lengths((2, 6, 6), (1, 1, 2)) == ((3, 2, NOTHING, 2, NOTHING, 1, NOTHING),)
    assert trace.lengths((4, 6, 9)) == ((NOTHING, 2, *[NOTHING] * 5),)
    drafting = read_drafting(PLAN, PLAN.rounds[0], trace)
    assert isinstance(drafting, Drafting) and drafting.demands.matching is not None
    assert drafting.demands.matching.shares == pytest.approx((2 / 3, 0.0, 1 / 3))
    depths = [one.judged[-1].depth for one in drafting.demands.matching.forms]
    assert depths == [6, 2, 0]
    assert drafting.rounds(7, 1).mean == 3.0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("length=6", "length=10"), "9 tokens of copies were compared, and 10 are drafted"),
        (("[2, 6]", "[2, 5]"), "matches of 2 to 5 tokens were not measured"),
        (("[2, 6]", "[3, 6]"), "matches of 1 to 1 tokens were not measured"),
        (("length=2", "length=2 children=2"), "say nothing of trees"),
    ],
)
def test_other_copies_have_no_price(change: tuple[str, str], problem: str) -> None:
    plan = parse_plan(drafted(TWO_LENGTHS.replace(*change), draft=False))
    assert problem in str(read_drafting(plan, plan.rounds[0], Copies(6, 9, ROWS)))


def test_as_many_rounds_of_each_form_run_as_the_trace_says(tmp_path: Path) -> None:
    save_pair(tmp_path)
    models, ran = load_pair(tmp_path), Counter[int | None]()
    executable = StaticExecutable(PLAN, models, counting(ran))
    for prompt in ((5, 9, 2, 33, 5, 9), (3, 20, 41, 8, 3, 20)):
        requests = [Request(prompt_tokens=prompt, max_new_tokens=40)]
        (tokens,) = run(plain(), models, requests)
        copies = copies_along([*prompt, *tokens], len(prompt), (1, 6), 9)
        ran.clear()
        generate(executable, requests)
        drafting = read_drafting(PLAN, PLAN.rounds[0], Copies(6, 9, (tuple(copies),)))
        assert isinstance(drafting, Drafting) and drafting.demands.matching is not None
        shares = [ran[outcome] / ran.total() for outcome in outcomes_of(PLAN.rounds[0])]
        assert drafting.demands.matching.shares == pytest.approx(shares)
        assert min(shares) > 0


@pytest.mark.parametrize("rows", [(), (((7, 0),),), (((2, 10),),), (((0, 1),),), (((1,),),)])
def test_broken_traces_are_refused(rows: object) -> None:
    with pytest.raises(UsageError, match=r"no measurement|out of range"):
        AcceptanceProfile(KEY, Copies(6, 9, rows))  # type: ignore[arg-type]
