"""Many loads priced at once are each load priced alone."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.cells import each, grid, split
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.intervals import Interval, Seconds
from tests.cost_models.rounds.test_pricing import SHAPES
from tests.ir.plans_on_disk import plan_of
from tests.plan_texts import greedy_chain

PLANS = {"chain": greedy_chain(4), "tree": plan_of("static_tree")}
PROFILES = {
    "hazards": AcceptanceProfile.from_hazards([[0.6, 0.2, 0.1, 0.02]], trials=500.0),
    "traces": AcceptanceProfile(
        AcceptanceKey(Model("draft")), Ranks(((0, 0, -1, 1, 0) * 8, (-1, 0, 0, 0, -1, 2) * 8))
    ),
}
NUMBERS = st.lists(st.integers(1, 300), min_size=1, max_size=3, unique=True)


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("evidence", PROFILES)
@given(batches=NUMBERS, prompts=st.lists(st.integers(2, 5000), min_size=1, max_size=3))
@settings(max_examples=8)
def test_a_cell_is_the_load_alone(
    kind: str, evidence: str, batches: list[int], prompts: list[int]
) -> None:
    device = load_device("a100-sxm-80gb")
    batch, prompt = grid(batches, prompts)
    acceptance = PROFILES[evidence]
    pricer = Pricer(device, SHAPES, batch, prompt, 40).estimate(PLANS[kind], acceptance)
    assert isinstance(pricer, Estimate)
    cells = pricer.cells()
    assert [(c.batch, c.prompt_tokens) for c in cells] == [(b, p) for b in batches for p in prompts]
    for one in cells:
        alone = Pricer(
            device, SHAPES, batch=one.batch, prompt_tokens=one.prompt_tokens, output_tokens=40
        ).estimate(PLANS[kind], acceptance)
        assert isinstance(alone, Estimate)
        same = {**asdict(one), "assumptions": ()}, {**asdict(alone), "assumptions": ()}
        assert_same(*same)


def assert_same(mine: object, theirs: object) -> None:
    if isinstance(mine, dict):
        assert isinstance(theirs, dict) and set(mine) == set(theirs)
        for key in mine:
            assert_same(mine[key], theirs[key])
    elif isinstance(mine, tuple | list):
        assert isinstance(theirs, tuple | list) and len(mine) == len(theirs)
        for pair in zip(mine, theirs, strict=True):
            assert_same(*pair)
    elif isinstance(mine, float | int):
        assert mine == pytest.approx(theirs, rel=1e-9)
    else:
        assert mine == theirs


def test_loads_of_different_rounds_are_priced_apart() -> None:
    batch, prompt = grid([1, 64], [512])
    pricer = Pricer(load_device("h200"), SHAPES, batch, prompt, 40)
    with pytest.raises(ValueError, match="different rounds"):
        pricer.estimate(plan_of("schedule"), PROFILES["hazards"])


def test_functions_of_a_column_run_once_per_value() -> None:
    seen: list[int] = []

    def interval(batch: int) -> Interval:
        seen.append(batch)
        return Interval(float(batch), batch / 2, batch * 2.0)

    intervals = each(np.array([4, 1, 4, 4]), interval)
    assert seen == [1, 4]
    assert intervals.mean.tolist() == [4.0, 1.0, 4.0, 4.0]  # type: ignore[attr-defined]
    assert split(intervals, 4)[1] == Interval(1.0, 0.5, 2.0)
    assert each(3, interval) == Interval(3.0, 1.5, 6.0)


def test_what_is_the_same_everywhere_stays_as_it_is() -> None:
    seconds = Seconds.exact(1.0)
    assert all(part is seconds for part in split(seconds, 5))
    assert split((np.array([1, 2]), seconds), 2) == [(1, seconds), (2, seconds)]
