"""What every race has: contenders, the trials so far, the standing among them, and the budget."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from specplan.measure.progress import Progress, silent
from specplan.measure.tuning.contenders import Contenders, Load
from specplan.measure.tuning.elimination import FIRST_TURNS, Standing
from specplan.measure.tuning.proposals import PROPOSING, propose
from specplan.measure.tuning.study import Trial, TrialLog

PromptT = TypeVar("PromptT")
OPENING = 0.5
"""Fraction of the budget for the first turns of all contenders."""


@dataclass(kw_only=True)
class Contest(ABC):
    """A contest on one machine; other machines may add trials to its log.

    Attributes:
        contenders: the candidates that may take part.
        log: the trials.
        machine: name of this machine; trials of one turn of one machine are compared.
        budget: seconds of runs on this machine, those of earlier processes included.
        seed: of the order of prompts and contenders.
        progress: called for every run.
    """

    contenders: Contenders
    log: TrialLog
    machine: str
    budget: float
    seed: int = 0
    progress: Progress = silent

    @abstractmethod
    def run(self) -> None:
        """Make runs until every load is decided or the budget is spent.

        An interruption loses the current run and no other.
        """

    def interrupted(self) -> bool:
        """Run; whether the user ended it.

        Raises:
            KeyboardInterrupt: before the first run was recorded.
        """
        try:
            self.run()
        except KeyboardInterrupt:
            self.log = self.log.reopened()
            if not self.log.trials():
                raise
            return True
        return False

    def opening(self, seconds: float) -> float:
        """Seconds of a contender's first turns, of whose runs each takes `seconds`."""
        return (1 + FIRST_TURNS) * seconds

    def spent(self, trials: Sequence[Trial]) -> float:
        """Seconds of this machine's runs at these loads, warm-up runs included."""
        own = [trial for trial in self.own(trials) if trial.load in self.contenders.loads]
        return sum(trial.seconds + trial.warming for trial in own)

    def standing(self, load: Load, trials: Sequence[Trial]) -> tuple[tuple[str, ...], Standing]:
        """Keys of the plans that take part at a load, and their standing."""
        keys = self.taking_part(load, trials)
        return keys, self.contenders.standing(keys, trials, load)

    def taking_part(self, load: Load, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Keys of the plans that take part at a load."""
        ran = (t.plan for t in trials if t.load == load and t.plan in self.contenders)
        return tuple(dict.fromkeys([*self.entrants[load], *ran]))

    def proposed(
        self, load: Load, keys: Sequence[str], standing: Standing, trials: Sequence[Trial]
    ) -> list[str]:
        """Keys of new settings near the best ones, where it is time for some."""
        count = len(turns_of(trials, load))
        if count not in PROPOSING:
            return []
        return propose(self.contenders, keys, standing, load, f"{self.seed} {load} {count}")

    def trial(self, key: str, load: Load, turn: int, **measured: Any) -> Trial:
        """A run of a plan; `measured` are its seconds, tokens, rounds and warming."""
        candidate = self.contenders[key]
        return Trial(
            machine=self.machine,
            turn=turn,
            batch=load[0],
            prompt_tokens=load[1],
            plan=key,
            method=candidate.method,
            family=candidate.family,
            words=candidate.words,
            point=self.contenders.point(key),
            **measured,
        )

    def own(self, trials: Sequence[Trial]) -> list[Trial]:
        """Trials of this machine."""
        return [trial for trial in trials if trial.machine == self.machine]

    @cached_property
    def entrants(self) -> dict[Load, tuple[str, ...]]:
        """First contenders of every load."""
        loads = self.contenders.loads
        share = OPENING * self.budget / len(loads)
        return {load: self.contenders.entrants(load, share, self.opening) for load in loads}

    def undecided(self, trials: Sequence[Trial]) -> Load | None:
        """The undecided load with the fewest turns.

        A load stays open until it is decided and new settings were proposed once.
        """
        counts = {load: len(turns_of(trials, load)) for load in self.contenders.loads}
        left = [
            load
            for load, count in counts.items()
            if count <= PROPOSING[0] or not self.standing(load, trials)[1].decided
        ]
        return min(left, key=lambda load: counts[load], default=None)

    def report(self, best: str, trials: Sequence[Trial]) -> None:
        """Report the leader and the time left."""
        spent, whole = round(min(self.spent(trials), self.budget)), round(self.budget)
        self.progress(f"tuning: {best}{(whole - spent) / 60.0:.1f} min left", spent, whole)

    def best(self, trials: Sequence[Trial]) -> str:
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


def turns_of(trials: Sequence[Trial], load: Load) -> set[tuple[str, int]]:
    """Machine and number of every turn of a load."""
    return {(trial.machine, trial.turn) for trial in trials if trial.load == load}


def prompts_of(prompts: Sequence[PromptT], count: int, turn: int, seed: str) -> list[PromptT]:
    """So many prompts for a turn: shuffled, and none repeats before all were used."""
    epoch, place = divmod(turn, len(prompts) // count)
    order = random.Random(f"{seed} {epoch}").sample(list(prompts), len(prompts))
    return order[place * count : (place + 1) * count]
