"""The race: which contenders run next, and running them.

In every turn, all contenders of a load run the same group of prompts, in random order. The next
turn follows from the recorded trials, the seed and the budget alone, so that a race that was killed
continues as if it had not been.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from specplan.ir.errors import NothingToCompareError
from specplan.ir.plan import Plan
from specplan.measure.bench.contenders import Timer
from specplan.measure.progress import Progress, silent
from specplan.measure.tuning.contenders import Contenders, Load
from specplan.measure.tuning.elimination import Standing
from specplan.measure.tuning.proposals import PROPOSING, propose
from specplan.measure.tuning.study import Trial, TrialLog
from specplan.measure.workbench import TokenPrompt

OPENING = 0.5
"""Fraction of the budget for the first turns of all contenders."""


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


@dataclass
class Race:
    """A race on one machine; other machines may add trials to its log.

    Attributes:
        contenders: the candidates that may take part.
        log: the trials.
        timer: makes a plan's timed runs; another engine goes here.
        prompts: to run on.
        machine: name of this machine; trials of one turn of one machine are compared.
        budget: seconds of runs on this machine, those of earlier processes included.
        seed: of the order of prompts and contenders.
        progress: called for every run.
    """

    contenders: Contenders
    log: TrialLog
    timer: Callable[[Plan], Timer]
    prompts: Sequence[TokenPrompt]
    machine: str
    budget: float
    seed: int = 0
    progress: Progress = silent

    def __post_init__(self) -> None:
        self._timers: dict[str, Timer] = {}
        self._finished = -1
        largest = max(batch for batch, _ in self.contenders.loads)
        if len(self.prompts) < largest:
            raise NothingToCompareError(
                f"{len(self.prompts)} prompts do not fill a batch of {largest}",
                where="workload.prompts",
                remedy="Give more prompts, or tune smaller batches.",
            )

    def run(self) -> None:
        """Take turns until every load is decided or the budget is spent.

        An interruption loses the current run and no other.
        """
        trials = self.log.trials()
        while (turn := self.next_turn(trials)) is not None:
            best = self._best(trials)
            done = {t.plan for t in self._own(trials) if t.turn == turn.number}
            for key in turn.keys:
                if key in done:
                    continue
                self._report(best, trials)
                if self.spent(trials) >= self.budget:
                    return
                self.log.add(self._trial(key, turn, trials))
                trials = self.log.trials()
            self._finished = turn.number
        self._report(self._best(trials), trials)

    def spent(self, trials: Sequence[Trial]) -> float:
        """Seconds of this machine's runs at these loads, warm-up runs included."""
        own = [trial for trial in self._own(trials) if trial.load in self.contenders.loads]
        return sum(trial.seconds + trial.warming for trial in own)

    def next_turn(self, trials: Sequence[Trial]) -> Turn | None:
        """The unfinished turn, or the one after the last; None when every load is decided."""
        self.contenders.recall(trials)
        own = self._own(trials)
        last = max((trial.turn for trial in own), default=-1)
        part = [trial for trial in own if trial.turn == last]
        before = [t for t in trials if (t.machine, t.turn) != (self.machine, last)]
        if last > self._finished and part and part[0].load in self.contenders.loads:
            turn = self._turn(last, part[0].load, before)
            if not set(turn.keys) <= {trial.plan for trial in part}:
                return turn
        load = self._undecided(trials)
        return None if load is None else self._turn(last + 1, load, trials)

    def standing(self, load: Load, trials: Sequence[Trial]) -> tuple[tuple[str, ...], Standing]:
        """Keys of the plans that take part at a load, and their standing."""
        ran = (t.plan for t in trials if t.load == load and t.plan in self.contenders)
        keys = tuple(dict.fromkeys([*self._entrants[load], *ran]))
        return keys, self.contenders.standing(keys, trials, load)

    def _own(self, trials: Sequence[Trial]) -> list[Trial]:
        return [trial for trial in trials if trial.machine == self.machine]

    @cached_property
    def _entrants(self) -> dict[Load, tuple[str, ...]]:
        loads = self.contenders.loads
        share = OPENING * self.budget / len(loads)
        return {load: self.contenders.entrants(load, share) for load in loads}

    def _undecided(self, trials: Sequence[Trial]) -> Load | None:
        """The undecided load with the fewest turns.

        A load stays open until it is decided and new settings were proposed once.
        """
        counts = {load: len(_turns(trials, load)) for load in self.contenders.loads}
        left = [
            load
            for load, count in counts.items()
            if count <= PROPOSING[0] or not self.standing(load, trials)[1].decided
        ]
        return min(left, key=lambda load: counts[load], default=None)

    def _turn(self, number: int, load: Load, before: Sequence[Trial]) -> Turn:
        """The turn that follows from the trials before it."""
        keys, standing = self.standing(load, before)
        alive = [key for key, on in zip(keys, standing.alive, strict=True) if on]
        count = len(_turns(before, load))
        if count in PROPOSING:
            seed = f"{self.seed} {load} {count}"
            alive += propose(self.contenders, keys, standing, load, seed)
        draws = random.Random(f"{self.seed} {self.machine} {number}")
        mine = len(_turns(self._own(before), load))
        return Turn(
            number, load, tuple(draws.sample(sorted(alive), len(alive))), self._group(load, mine)
        )

    def _group(self, load: Load, turn: int) -> tuple[TokenPrompt, ...]:
        """Prompts of a load's turn: shuffled, and none repeats before all were used."""
        batch, longest = load
        epoch, place = divmod(turn, len(self.prompts) // batch)
        draws = random.Random(f"{self.seed} {self.machine} {load} {epoch}")
        order = draws.sample(list(self.prompts), len(self.prompts))
        chosen = order[place * batch : (place + 1) * batch]
        return tuple(replace(prompt, tokens=prompt.tokens[-longest:]) for prompt in chosen)

    def _trial(self, key: str, turn: Turn, trials: Sequence[Trial]) -> Trial:
        """Run a plan; its first run in a process only warms caches and allocators."""
        candidate, warming = self.contenders[key], 0.0
        assert candidate.plan is not None, "it has a price"
        if key not in self._timers:
            self._timers[key] = self.timer(candidate.plan)
            warming = self._timers[key](turn.prompts).seconds
        known = any(trial.plan == key for trial in self._own(trials))
        outcome = self._timers[key](turn.prompts)
        return Trial(
            machine=self.machine,
            turn=turn.number,
            batch=turn.load[0],
            prompt_tokens=turn.load[1],
            plan=key,
            method=candidate.method,
            family=candidate.family,
            words=candidate.words,
            seconds=outcome.seconds,
            tokens=sum(map(len, outcome.outputs)),
            rounds=outcome.rounds,
            warming=0.0 if known else warming,
            point=self.contenders.point(key),
        )

    def _report(self, best: str, trials: Sequence[Trial]) -> None:
        """Report the leader and the time left."""
        spent, whole = round(min(self.spent(trials), self.budget)), round(self.budget)
        self.progress(f"tuning: {best}{(whole - spent) / 60.0:.1f} min left", spent, whole)

    def _best(self, trials: Sequence[Trial]) -> str:
        """The leader of the load that ran last, in words; empty before its first run."""
        loads = [trial.load for trial in trials if trial.load in self.contenders.loads]
        if not loads or self.progress is silent:
            return ""
        load = loads[-1]
        keys, standing = self.standing(load, trials)
        leader, speed = self.contenders[keys[standing.leader]], load[0] / standing.seconds
        at = f" at batch {load[0]}" if len(self.contenders.loads) > 1 else ""
        words, left = f"{leader.method} {leader.words}".strip(), int(standing.alive.sum())
        return f"best so far{at} {words}, {speed:.0f} tokens/s, {left} in the race, "


def _turns(trials: Sequence[Trial], load: Load) -> set[tuple[str, int]]:
    """Machine and number of every turn of a load."""
    return {(trial.machine, trial.turn) for trial in trials if trial.load == load}
