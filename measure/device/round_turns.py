"""Rounds that a backend compiles, and their seconds by turn, which outlast the process.

A turn runs every round once, so that a machine that is slower for a while is so for each of them.
It is written when it is whole: a process that is killed loses its current turn, and the next one
goes on behind the last whole turn of the same rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Self, TypeAlias

from specplan.backends.static.buckets import Bucket
from specplan.backends.static.packages import RoundBackend
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.bench.interleave import each_turn
from specplan.measure.device import time_probe as times
from specplan.measure.device.probes import Probe
from specplan.measure.workbench import Workbench
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate

EMITTED = 48
"""Tokens emitted per run and request: several rounds of the longest drafts."""
FIRST = 2
"""Rounds of a run that are left out."""
ROUND = "round"
"""How the op of a whole round begins; the end of its form's name follows."""
Forms: TypeAlias = Mapping[str, float]
"""Seconds of a round by the ends of the names of its forms; see `outcome_words`."""
Timed: TypeAlias = tuple[Forms, float]
"""The same of a turn, and seconds until prompts were read."""


@dataclass
class TimedRound:
    """A compiled round, called with the number of a turn, each on another text.

    Attributes:
        prompts: seconds until its prompts were read, in the last turn.
    """

    bench: Workbench
    probe: Probe
    batch: int
    context: int
    executable: Executable
    prompts: float = 0.0

    @classmethod
    def compiled(
        cls,
        bench: Workbench,
        probe: Probe,
        backend: RoundBackend,
        cell: tuple[int, int],
        room: int,
        folder: Path,
    ) -> Self:
        """Compile a round and run it once.

        Args:
            bench: the problem's models.
            probe: whose round it is.
            backend: compiles it.
            cell: batch, and context in tokens.
            room: longest text in tokens.
            folder: of what is compiled, which is taken from there if it is there.

        Raises:
            Exception: whatever the compiler raises.
        """
        bucket = Bucket(cell[0], room)
        made = backend.compile(probe.plan, bench.models, folder, buckets=[bucket])
        made.in_turn = True
        timed = cls(bench, probe, *cell, made)
        timed(-1)
        return timed

    def __call__(self, turn: int) -> Forms:
        """The mean round's seconds by form, without the first rounds: there, heads read the prompt.

        The forms of a round run in turn, as in requests: one that runs seldom takes longer than in
        a row, since less of what it reads is in the processor's caches.
        """
        spent: list[tuple[str, float]] = []

        def observe(
            op: str, model: str | None, batch: int, width: int, context: int, seconds: float
        ) -> None:
            if op.startswith(ROUND):
                spent.append((op.removeprefix(ROUND), seconds))

        cell = self.batch, self.context
        requests = times.requests_of(self.bench, *cell, seed=turn + 1, emitted=EMITTED)
        ran = generate(self.executable, requests, observer=observe)
        self.prompts = ran.prefill_seconds
        by_form: dict[str, list[float]] = defaultdict(list)
        for form, seconds in spent[FIRST:]:
            by_form[form].append(seconds)
        return {form: fmean(seconds) for form, seconds in by_form.items()}


class TurnLog:
    """Whole turns of some rounds, in a file.

    Args:
        path: of the file; one of other rounds, or a damaged one, is begun anew.
        about: what the turns depend on, as JSON data: the rounds in their order among it.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        self._about = dict(about)
        self._turns = self._read()

    def __len__(self) -> int:
        """Whole turns so far."""
        return len(self._turns)

    def run(self, rounds: Sequence[TimedRound]) -> None:
        """Run the next turn, and write it."""
        runs = dict(enumerate(rounds))
        for seconds in each_turn(runs, len(self), len(self) + 1):
            self._turns.append([(seconds[i], one.prompts) for i, one in runs.items()])
            write_json_atomic(self._path, {**self._about, "turns": self._turns})

    def medians(self) -> list[tuple[Forms, float]]:
        """Seconds of each round by form, and until its prompts were read."""
        made: list[tuple[Forms, float]] = []
        for turns in zip(*self._turns, strict=True):
            by_form: dict[str, list[float]] = defaultdict(list)
            for forms, _ in turns:
                for form, seconds in forms.items():
                    by_form[form].append(seconds)
            forms = {form: median(seconds) for form, seconds in by_form.items()}
            made.append((forms, median(prompts for _, prompts in turns)))
        return made

    def _read(self) -> list[list[Timed]]:
        if not self._path.is_file():
            return []
        try:
            stored = read_json(self._path)
            turns = stored.pop("turns")
            whole = [[_timed(*one) for one in turn] for turn in turns]
        except (UsageError, AttributeError, KeyError, TypeError, ValueError):
            return []
        return whole if stored == self._about else []


def _timed(seconds: Mapping[str, Any], prompts: Any) -> Timed:
    return {form: float(one) for form, one in seconds.items()}, float(prompts)
