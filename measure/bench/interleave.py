"""Programs that do the same work in turns: disturbances of the machine fall on all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias, TypeVar

from specplan.ir.errors import NothingToCompareError
from specplan.measure.bench.sequential import Evidence, Judgement, Rule
from specplan.measure.progress import Progress, silent


@dataclass(frozen=True)
class Turn:
    """One run over a group of prompts.

    Attributes:
        seconds: prompts included.
        tokens: emitted.
        outputs: identity of what was emitted.
    """

    seconds: float
    tokens: int
    outputs: str = ""

    @property
    def per_token(self) -> float:
        """Seconds per emitted token."""
        return self.seconds / max(self.tokens, 1)


Run: TypeAlias = Callable[[int], Turn]
"""Runs a group of prompts, given by its number."""
Name = TypeVar("Name")
Result = TypeVar("Result")


def seconds_in_turns(
    runs: Mapping[Name, Callable[[int], float]], turns: int
) -> dict[Name, list[float]]:
    """Seconds by program and turn; every other turn runs the programs in reverse order.

    Args:
        runs: from the number of a turn to seconds.
        turns: in each of which all programs run once.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    for turn in each_turn(runs, 0, turns):
        for name, one in turn.items():
            seconds[name].append(one)
    return seconds


def each_turn(
    runs: Mapping[Name, Callable[[int], Result]], first: int, end: int
) -> Iterator[dict[Name, Result]]:
    """What programs give in the turns from `first` up to `end`; see `seconds_in_turns`."""
    for turn in range(first, end):
        order = list(runs) if turn % 2 else list(runs)[::-1]
        yield {name: runs[name](turn) for name in order}


@dataclass(frozen=True)
class Pair:
    """Base and head on the same group, one right after the other.

    Attributes:
        group: number of the group of prompts.
        base: the run of the base.
        head: the run of the head.
        head_first: the head ran first.
    """

    group: int
    base: Turn
    head: Turn
    head_first: bool

    @property
    def log_ratio(self) -> float:
        """Log of the head's seconds per token over the base's."""
        return math.log(self.head.per_token / self.base.per_token)

    @property
    def seconds(self) -> float:
        """Of both runs."""
        return self.base.seconds + self.head.seconds


@dataclass(frozen=True)
class RaceResult:
    """The result of a race.

    Attributes:
        judgement: of the pairs.
        pairs: in the order in which they ran.
        seconds: from the start of the warm-up to the decision.
    """

    judgement: Judgement
    pairs: tuple[Pair, ...]
    seconds: float

    @property
    def differing(self) -> int:
        """Groups for which base and head emitted different tokens."""
        return len({p.group for p in self.pairs if p.base.outputs != p.head.outputs})


def pairs(base: Run, head: Run, groups: int, seed: int = 0) -> Iterator[Pair]:
    """Pairs without end: all groups in random order, repeatedly; a fair coin decides who is first.

    Raises:
        NothingToCompareError: there is no group.
    """
    if groups < 1:
        raise NothingToCompareError(
            "there is no group of prompts to run",
            where="workload.prompts",
            remedy="Give more prompts, or run smaller batches.",
        )
    draws = random.Random(seed)
    while True:
        for group in draws.sample(range(groups), groups):
            head_first = draws.random() < 0.5
            first = head(group) if head_first else base(group)
            second = base(group) if head_first else head(group)
            both = (second, first) if head_first else (first, second)
            yield Pair(group, *both, head_first)


def race(
    base: Run,
    head: Run,
    groups: int,
    rule: Rule,
    *,
    seconds: float,
    seed: int = 0,
    expected: Sequence[float] = (),
    progress: Progress = silent,
    clock: Callable[[], float] = perf_counter,
) -> RaceResult:
    """Run pairs until the test stops or the time is used up.

    Args:
        base: one of the two.
        head: the other, which may be slower.
        groups: number of groups of prompts.
        rule: of the test.
        seconds: time budget, the warm-up included; one pair runs in any case.
        seed: of the order.
        expected: log ratio of each group that counts as no change; empty for 0.
        progress: called with the seconds used.
        clock: gives seconds.

    Raises:
        NothingToCompareError: there is no group.
    """
    evidence, seen, longest, start = Evidence(rule), list[Pair](), 0.0, clock()
    source = pairs(base, head, groups, seed)
    next(source)  # not counted: the first run allocates and warms caches
    began = clock()
    while not seen or (not evidence.decided and began - start + longest <= seconds):
        pair = next(source)
        seen.append(pair)
        evidence.take(pair.log_ratio - (expected[pair.group] if expected else 0.0))
        now = clock()
        longest, began = max(longest, now - began), now
        progress("base and head in turn", min(round(now - start), round(seconds)), round(seconds))
    progress("base and head in turn", round(seconds), round(seconds))
    return RaceResult(evidence.judgement(), tuple(seen), began - start)
