"""The race: which contenders run next, and running them.

In every turn, all contenders of a load run the same group of prompts, in random order. The next
turn follows from the recorded trials, the seed and the budget alone, so that a race that was killed
continues as if it had not been.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specplan.ir.errors import NothingToCompareError
from specplan.ir.plan import Plan
from specplan.measure.bench.contenders import Timer
from specplan.measure.tuning.contenders import Load
from specplan.measure.tuning.contest import Contest, prompts_of, turns_of
from specplan.measure.tuning.study import Trial
from specplan.measure.workbench import TokenPrompt


@dataclass(frozen=True)
class Turn:
    """The runs of one turn.

    Attributes:
        number: of the turn on this machine.
        load: batch and prompt length.
        keys: plans to run, in order.
        prompts: to run them on.
    """

    number: int
    load: Load
    keys: tuple[str, ...]
    prompts: tuple[TokenPrompt, ...]


@dataclass(kw_only=True)
class Race(Contest):
    """A race of plans on this machine.

    Attributes:
        timer: makes a plan's timed runs.
        prompts: to run on.
        compiles: the first run of a plan at a load compiles it. Plain decoding runs first then:
            what its compiling took tells how many contenders the budget is enough for.
    """

    timer: Callable[[Plan], Timer]
    prompts: Sequence[TokenPrompt]
    compiles: bool = False

    def __post_init__(self) -> None:
        self._timers: dict[str, Timer] = {}
        self._warm: set[tuple[str, Load | None]] = set()
        self._finished = -1
        largest = max(batch for batch, _ in self.contenders.loads)
        if len(self.prompts) < largest:
            raise NothingToCompareError(
                f"{len(self.prompts)} prompts do not fill a batch of {largest}",
                where="workload.prompts",
                remedy="Give more prompts, or tune smaller batches.",
            )

    def opening(self, seconds: float) -> float:
        """See `Contest.opening`."""
        return self.compiling + super().opening(seconds)

    @property
    def compiling(self) -> float:
        """Seconds to compile a contender: those of the first that ran on this machine."""
        first = next(iter(self.own(self.log.trials())), None) if self.compiles else None
        return 0.0 if first is None else max(first.warming - first.seconds, 0.0)

    def run(self) -> None:
        """Take turns until every load is decided or the budget is spent.

        An interruption loses the current run and no other.
        """
        trials = self.log.trials()
        if self.compiles and not self.own(trials):
            self.report("", trials)
            load, plain = self.contenders.loads[0], self.contenders.plain
            self.log.add(self._trial(plain, Turn(0, load, (plain,), self._group(load, 0)), trials))
            trials = self.log.trials()
        while (turn := self.next_turn(trials)) is not None:
            best = self.best(trials)
            done = {t.plan for t in self.own(trials) if t.turn == turn.number}
            for key in turn.keys:
                if key in done:
                    continue
                self.report(best, trials)
                if self.spent(trials) >= self.budget:
                    return
                self.log.add(self._trial(key, turn, trials))
                trials = self.log.trials()
            self._finished = turn.number
        self.report(self.best(trials), trials)

    def next_turn(self, trials: Sequence[Trial]) -> Turn | None:
        """The unfinished turn, or the one after the last; None when every load is decided."""
        self.contenders.recall(trials)
        own = self.own(trials)
        last = max((trial.turn for trial in own), default=-1)
        part = [trial for trial in own if trial.turn == last]
        before = [t for t in trials if (t.machine, t.turn) != (self.machine, last)]
        if last > self._finished and part and part[0].load in self.contenders.loads:
            turn = self._turn(last, part[0].load, before)
            if not set(turn.keys) <= {trial.plan for trial in part}:
                return turn
        load = self.undecided(trials)
        return None if load is None else self._turn(last + 1, load, trials)

    def _turn(self, number: int, load: Load, before: Sequence[Trial]) -> Turn:
        """The turn that follows from the trials before it."""
        keys, standing = self.standing(load, before)
        alive = [key for key, on in zip(keys, standing.alive, strict=True) if on]
        alive += self.proposed(load, keys, standing, before)
        draws = random.Random(f"{self.seed} {self.machine} {number}")
        mine = len(turns_of(self.own(before), load))
        return Turn(
            number, load, tuple(draws.sample(sorted(alive), len(alive))), self._group(load, mine)
        )

    def _group(self, load: Load, turn: int) -> tuple[TokenPrompt, ...]:
        """Prompts of a load's turn: shuffled, and none repeats before all were used."""
        batch, longest = load
        chosen = prompts_of(self.prompts, batch, turn, f"{self.seed} {self.machine} {load}")
        return tuple(replace(prompt, tokens=prompt.tokens[-longest:]) for prompt in chosen)

    def _trial(self, key: str, turn: Turn, trials: Sequence[Trial]) -> Trial:
        """Run a plan; its first run in a process warms caches, that of a load may compile it."""
        candidate, warming = self.contenders[key], 0.0
        assert candidate.plan is not None, "it has a price"
        if key not in self._timers:
            self._timers[key] = self.timer(candidate.plan)
        new = key, turn.load if self.compiles else None
        if new not in self._warm:
            self._warm.add(new)
            warming = self._timers[key](turn.prompts).seconds
        known = any(t.plan == key and new[1] in (None, t.load) for t in self.own(trials))
        outcome = self._timers[key](turn.prompts)
        return self.trial(
            key,
            turn.load,
            turn.number,
            seconds=outcome.seconds,
            tokens=sum(map(len, outcome.outputs)),
            rounds=outcome.rounds,
            warming=0.0 if known else warming,
        )
