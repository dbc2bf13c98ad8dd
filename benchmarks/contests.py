"""Plans take turns on the same prompts: so many of them, or until the fastest is known.

Turn by turn every contender runs the same group of prompts, in random order, so that what slows the
machine slows all of them alike; compared are logarithms of times within turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

from specplan.measure.bench.contenders import Outcome, Timer
from specplan.measure.workbench import TokenPrompt

FIRST_TURNS = 5
"""Turns before any contender drops out."""
CERTAINTY = 0.99
"""That one is slower than the leader, by Student's t over turns, before it drops out."""

Groups = Iterator[Sequence[TokenPrompt]]
Name = TypeVar("Name")


@dataclass(eq=False)
class Contender:
    """A plan that runs, and its seconds per output token, turn by turn."""

    words: str
    run: Timer
    spent: list[float] = field(default_factory=list)

    def turn(self, prompts: Sequence[TokenPrompt]) -> None:
        """Run one batch of prompts."""
        outcome = self.run(prompts)
        self.spent.append(outcome.seconds / sum(map(len, outcome.outputs)))


def in_random_turns(
    ready: Mapping[Name, Timer], prompts: Sequence[TokenPrompt], repeats: int = 1, seed: int = 1
) -> dict[Name, list[Outcome]]:
    """What every contender does on each prompt alone, after a run that does not count.

    Args:
        ready: the contenders.
        prompts: all of them are continued before the first repeats.
        repeats: of all prompts.
        seed: of the order in each turn.
    """
    for run in ready.values():
        run(prompts[:1])  # compiles, allocates memory and warms caches
    draws, outcomes = random.Random(seed), {name: list[Outcome]() for name in ready}
    for prompt in [*prompts] * repeats:
        for name in draws.sample(list(ready), len(ready)):
            outcomes[name].append(ready[name]([prompt]))
    return outcomes


def contest(
    contenders: Sequence[Contender],
    chosen: Contender,
    groups: Groups,
    seconds: float,
    draws: random.Random,
) -> tuple[Contender, int]:
    """Who is fastest on the same groups, and on how many; slower ones drop out on the way.

    Args:
        contenders: the chosen one among them.
        chosen: never drops out.
        groups: of prompts, one for each turn.
        seconds: after which no turn begins, once there were `FIRST_TURNS`.
        draws: the order of every turn.
    """
    left, start, turns = list(contenders), time.perf_counter(), 0
    while len(left) > 1 and (turns < FIRST_TURNS or time.perf_counter() - start < seconds):
        prompts = next(groups)
        for contender in draws.sample(left, len(left)):
            contender.turn(prompts)
        turns += 1
        if turns >= FIRST_TURNS:
            leader = min(left, key=lambda contender: sum(contender.spent))
            left = [c for c in left if c in (leader, chosen) or not is_slower(c, leader)]
    return min(left, key=lambda contender: sum(contender.spent)), turns


def is_slower(one: Contender, leader: Contender) -> bool:
    """Whether one took longer than the leader in the same turns beyond doubt.

    With few turns their scatter is itself uncertain: hence Student's t, with a degree of freedom
    less than there are turns. Two standard errors would be exceeded by chance, after three turns,
    by one in eleven contenders that are as fast as the leader.
    """
    ratios = np.log(np.array(one.spent) / np.array(leader.spent))
    error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    return bool(ratios.mean() > stdtrit(len(ratios) - 1, CERTAINTY) * error)


def duel(
    chosen: Contender,
    leader: Contender,
    groups: Groups,
    seconds: float,
    draws: random.Random,
) -> dict[str, float]:
    """How much slower the chosen plan is than the leader, on turns of their own.

    Returns:
        `regret`, the part of the chosen plan's time that the leader saves, between `low` and
        `high`, its 90 % interval over turns (jackknife, Student's t), and `turns`.
    """
    chosen.spent, leader.spent = [], []
    start = time.perf_counter()
    while len(chosen.spent) < 2 * FIRST_TURNS or time.perf_counter() - start < seconds:
        prompts = next(groups)
        for contender in draws.sample([chosen, leader], 2):
            contender.turn(prompts)
    mine, best = np.array(chosen.spent), np.array(leader.spent)
    regret = 1.0 - best.sum() / mine.sum()
    without = 1.0 - (best.sum() - best) / (mine.sum() - mine)
    error = float(np.sqrt((len(mine) - 1) * ((without - without.mean()) ** 2).mean()))
    half = float(stdtrit(len(mine) - 1, 0.95)) * error
    return {
        "regret": float(regret),
        "low": float(regret) - half,
        "high": float(regret) + half,
        "turns": len(mine),
    }
