"""Pairs of runs in turn: the same work, a fair order, and an end in time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from specplan.ir.errors import NothingToCompareError
from specplan.measure.bench.interleave import Run, Turn, pairs, race
from specplan.measure.bench.sequential import Rule


class Machine:
    """A simulated machine: programs take simulated seconds on its clock, with noise."""

    def __init__(self, noise: float, seed: int = 0) -> None:
        self.now = 0.0
        self.noise = noise
        self.draws = random.Random(seed)

    def program(self, seconds: Callable[[int], float], outputs: str = "same") -> Run:
        def run(group: int) -> Turn:
            took = seconds(group) * self.draws.lognormvariate(0.0, self.noise)
            self.now += took
            return Turn(took, 10, f"{outputs} {group}" if group else "first")

        return run

    def clock(self) -> float:
        return self.now


def test_pairs_share_their_work_and_orders_are_fair() -> None:
    machine = Machine(0.0)
    base = machine.program(lambda group: 1.0 + group)
    head = machine.program(lambda group: 2.0 * (1.0 + group))
    seen = list(islice(pairs(base, head, 5, seed=1), 500))
    assert Counter(pair.group for pair in seen) == {group: 100 for group in range(5)}
    assert {pair.group for pair in seen[:5]} == set(range(5))
    assert all(pair.head.seconds == pytest.approx(2.0 * pair.base.seconds) for pair in seen)
    assert 200 < sum(pair.head_first for pair in seen) < 300
    again = list(islice(pairs(base, head, 5, seed=1), 500))
    assert [(p.group, p.head_first) for p in again] == [(p.group, p.head_first) for p in seen]


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "not slower"), (1.05, "slower")])
def test_a_race_stops_as_soon_as_it_knows(factor: float, verdict: str) -> None:
    machine = Machine(0.03)
    base = machine.program(lambda group: 0.2 + 0.1 * group)
    head = machine.program(lambda group: factor * (0.2 + 0.1 * group), "other")
    outcome = race(base, head, 4, Rule(0.05), seconds=150.0, clock=machine.clock)
    assert outcome.judgement.verdict == verdict and outcome.judgement.sure
    assert outcome.seconds == pytest.approx(machine.now) and outcome.seconds < 60.0
    assert outcome.judgement.pairs == len(outcome.pairs)
    assert outcome.differing == 3


def test_a_race_ends_in_time() -> None:
    machine = Machine(1.0, seed=2)
    run = machine.program(lambda group: 1.0)
    outcome = race(run, run, 3, Rule(0.01), seconds=60.0, clock=machine.clock)
    assert not outcome.judgement.sure
    assert 30.0 < outcome.seconds <= 60.0
    short = race(run, run, 3, Rule(0.01), seconds=0.0, clock=machine.clock)
    assert len(short.pairs) == 1 and short.judgement.verdict == "undecided"


def test_what_is_expected_counts_as_no_change() -> None:
    machine = Machine(0.01)
    base = machine.program(lambda group: 1.0)
    head = machine.program(lambda group: (0.5, 0.4)[group])
    expected = (-0.6931, -0.9163)
    outcome = race(base, head, 2, Rule(), seconds=99.0, expected=expected, clock=machine.clock)
    assert outcome.judgement.verdict == "not slower"
    assert outcome.judgement.ratio == pytest.approx(1.0, abs=0.02)
    expected = (-0.6931 - 0.06, -0.9163 - 0.06)
    slower = race(base, head, 2, Rule(), seconds=99.0, expected=expected, clock=machine.clock)
    assert slower.judgement.verdict == "slower"


def test_nothing_to_run_is_stated() -> None:
    run = Machine(0.0).program(lambda group: 1.0)
    with pytest.raises(NothingToCompareError, match="no group"):
        race(run, run, 0, Rule(), seconds=1.0)
