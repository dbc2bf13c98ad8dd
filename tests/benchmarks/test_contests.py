"""`benchmarks/contests.py`: who wins and who drops out, with made-up times and a made-up clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from specplan.measure.bench.contenders import Outcome


class FakeTime:
    """Seconds that pass only while a contender runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[tuple[str, int]] = []

    def runs(self, name: str, seconds: Callable[[], float]) -> Callable[[list[int]], Outcome]:
        def run(prompts: list[int]) -> Outcome:
            taken = seconds()
            self.now += taken
            self.ran.append((name, prompts[0]))
            return Outcome(taken, None, ((1, 2), (3, 4)), 1)

        return run


@pytest.fixture
def contests(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    import contests

    return contests


@pytest.fixture
def clock(contests: ModuleType, monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(contests, "time", SimpleNamespace(perf_counter=lambda: fake.now))
    return fake


def groups() -> Iterator[list[int]]:
    return ([number] for number in count())


def noisy(seed: int, mean: float, scatter: float) -> Callable[[], float]:
    rng = np.random.default_rng(seed)
    return lambda: float(mean * np.exp(scatter * rng.standard_normal()))


def test_all_continue_the_same_prompts_in_turns(contests: ModuleType, clock: FakeTime) -> None:
    ready = {
        name: clock.runs(name, partial(next, count(1))) for name in ("a", "b", "c", "d")
    }  # seconds say how often one ran
    outcomes = contests.in_random_turns(ready, [10, 11, 12], repeats=2)
    for name in ready:
        assert [prompt for ran, prompt in clock.ran if ran == name] == [10, *[10, 11, 12] * 2]
        assert [one.seconds for one in outcomes[name]] == [2, 3, 4, 5, 6, 7], "the first warms up"
    turns = [tuple(name for name, _ in clock.ran[4 * i :][:4]) for i in range(1, 7)]
    assert {frozenset(turn) for turn in turns} == {frozenset(ready)} and len(set(turns)) > 3


def test_the_slow_drop_out_and_the_chosen_one_never(contests: ModuleType, clock: FakeTime) -> None:
    means = {"fast": 1.0, "near": 1.01, "slow": 2.0, "chosen": 3.0}
    field = [
        contests.Contender(name, clock.runs(name, noisy(place, mean, 0.02)))
        for place, (name, mean) in enumerate(means.items())
    ]
    leader, turns = contests.contest(field, field[-1], groups(), 100.0, random.Random(0))
    assert leader.words == "fast" and turns > 2 * contests.FIRST_TURNS
    assert clock.now >= 100.0 > clock.now - sum(means.values()) * 1.1
    spent = {contender.words: len(contender.spent) for contender in field}
    assert spent["slow"] == contests.FIRST_TURNS and spent["chosen"] == spent["fast"] == turns
    orders = set()
    for turn in range(turns):
        ran = [name for name, group in clock.ran if group == turn]
        orders.add(tuple(ran))
        assert len(ran) == len(set(ran)) and {"fast", "chosen"} <= set(ran)
    assert len(orders) > 3, "the order is drawn anew"
    assert field[0].spent[0] == pytest.approx(1.0 / 4, rel=0.1), "seconds per token of four"


def test_a_contest_without_time_has_its_first_turns(contests: ModuleType, clock: FakeTime) -> None:
    field = [contests.Contender(name, clock.runs(name, lambda: 1.0)) for name in ("a", "b")]
    leader, turns = contests.contest(field, field[1], groups(), 0.0, random.Random(0))
    assert turns == contests.FIRST_TURNS >= 5 and leader is field[0]
    alone = contests.Contender("alone", clock.runs("alone", lambda: 1.0))
    assert contests.contest([alone], alone, groups(), 9.0, random.Random(0)) == (alone, 0)


@pytest.mark.parametrize("turns", [5, 12])
def test_doubt_is_as_large_as_few_turns_make_it(contests: ModuleType, turns: int) -> None:
    """Of contenders as fast as the leader one in a hundred is called slower; twice as slow, all."""
    rng = np.random.default_rng(0)
    called = slower = 0
    for _ in range(2000):
        one, other = (
            SimpleNamespace(spent=np.exp(0.1 * rng.standard_normal(turns))) for _ in range(2)
        )
        called += contests.is_slower(one, other)
        slower += contests.is_slower(SimpleNamespace(spent=2.0 * one.spent), other)
    assert 0.003 < called / 2000 < 0.02 and slower > 1980


def test_a_duel_tells_what_the_leader_saves(contests: ModuleType, clock: FakeTime) -> None:
    def contender(name: str, seconds: Callable[[], float]) -> object:
        return contests.Contender(name, clock.runs(name, seconds), spent=[9.0])

    exact = contests.duel(
        contender("chosen", lambda: 1.0),
        contender("leader", lambda: 0.9),
        groups(),
        50.0,
        random.Random(0),
    )
    assert exact["regret"] == exact["low"] == exact["high"] == pytest.approx(0.1)
    assert exact["turns"] == 27, "50 s of 1.9 each; turns before it do not count"
    covered = 0
    for seed in range(300):
        sides = (("chosen", seed, 1.0), ("leader", 1000 + seed, 0.97))
        two = [contender(name, noisy(start, mean, 0.05)) for name, start, mean in sides]
        duel = contests.duel(*two, groups(), 0.0, random.Random(seed))
        assert duel["turns"] == 2 * contests.FIRST_TURNS
        covered += duel["low"] <= 0.03 <= duel["high"]
    assert 0.86 < covered / 300 < 0.945
