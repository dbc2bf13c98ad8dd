"""The race on a serving engine: which plan is served next, and what a run there says.

Starting an engine takes longer than a run, so a plan that is served makes the runs of several turns
at every load where it is in the race, a lap of them. All plans of a lap get the same prompts. The
next visit follows from the recorded trials, the seed and the budget alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specplan.backends.engines.probe import PROMPTS, prompt_line
from specplan.cost_models.devices.engine_runs import ServedRun
from specplan.ir.errors import UsageError
from specplan.ir.files import write_atomic
from specplan.ir.plan import Plan
from specplan.measure.tuning.contenders import Load
from specplan.measure.tuning.contest import Contest, prompts_of
from specplan.measure.tuning.elimination import FIRST_TURNS
from specplan.measure.tuning.run_results import read_run
from specplan.measure.tuning.server import Commands, Server, ServingError, log_end
from specplan.measure.tuning.study import Failure, Trial

START_SECONDS = 60.0
"""Assumed time of a start, for how many plans take part; starts that were made are measured."""
LEAST_REQUESTS, WAVES = 8, 4
"""Requests of a run: several waves of a batch."""
WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Deployment:
    """A plan as an engine serves it.

    Attributes:
        files: of the engine, text by name.
        serve: the command that starts the server, in their folder.
        bench: the command that measures it, in the folder of a run.
        draft_tokens: per step (K) of a chain of one length; None for other plans.
    """

    files: Mapping[str, str]
    serve: str
    bench: str
    draft_tokens: int | None


@dataclass(frozen=True)
class Visit:
    """What a plan runs while it is served.

    Attributes:
        key: of the plan.
        runs: loads, each with the number of a turn.
    """

    key: str
    runs: tuple[tuple[Load, int], ...]


@dataclass(kw_only=True)
class EngineRace(Contest):
    """A race of plans that a serving engine runs.

    Attributes:
        deploy: what the engine is given for a plan.
        commands: of the user; an empty `serve` stands for that of the deployment.
        texts: prompts of the runs.
        output_tokens: of a request.
        folder: for the files of every server and run.
    """

    deploy: Callable[[Plan], Deployment]
    commands: Commands
    texts: Sequence[str]
    output_tokens: int
    folder: Path

    def run(self) -> None:
        """Serve plans until every load is decided or the budget is spent.

        An interruption loses the current run and no other; the server is stopped.

        Raises:
            UsageError: plain decoding cannot be served, another server runs at the address, or the
                server cannot be stopped.
        """
        trials = self.log.trials()
        self._check_plain(trials)
        while (visit := self.next_visit(trials)) is not None:
            self.report(self.best(trials), trials)
            if self.spent(trials) >= self.budget:
                return
            self._serve(visit)
            trials = self.log.trials()
            self._check_plain(trials)
        self.report(self.best(trials), trials)

    def opening(self, seconds: float) -> float:
        """Seconds of a contender's first runs and of its start, a part of it for each load."""
        start = START_SECONDS / len(self.contenders.loads)
        return start + FIRST_TURNS * WAVES * seconds

    def spent(self, trials: Sequence[Trial]) -> float:
        """Seconds of this machine's runs and starts, those that failed included."""
        mine = (one.seconds for one in self.log.failures() if one.machine == self.machine)
        return super().spent(trials) + sum(mine)

    def taking_part(self, load: Load, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Keys of the plans that take part at a load and did not fail."""
        failed = {failure.plan for failure in self.log.failures()}
        keys = super().taking_part(load, trials)
        return tuple(key for key in keys if key not in failed) or (self.contenders.plain,)

    def next_visit(self, trials: Sequence[Trial]) -> Visit | None:
        """The first plan with runs that its lap lacks; None when every load is decided."""
        self.contenders.recall(trials)
        done = {(trial.plan, trial.load, trial.turn) for trial in self.own(trials)}
        lap = 0
        while True:
            turns = range(lap * FIRST_TURNS, (lap + 1) * FIRST_TURNS)
            before = [t for t in trials if t.machine != self.machine or t.turn < turns.start]
            keys = {load: self._keys(load, before, lap) for load in self.contenders.loads}
            for key in dict.fromkeys(key for part in keys.values() for key in part):
                runs = tuple(
                    (load, turn)
                    for load in keys
                    for turn in turns
                    if key in keys[load] and (key, load, turn) not in done
                )
                if runs:
                    return Visit(key, runs)
            if not any(keys.values()):
                return None
            lap += 1

    def _keys(self, load: Load, before: Sequence[Trial], lap: int) -> tuple[str, ...]:
        """Plans of a lap, plain decoding first; none where the load is decided."""
        failed = {failure.plan for failure in self.log.failures()}
        keys, standing = self.standing(load, before)
        new = self.proposed(load, keys, standing, before)
        if lap and standing.decided and not new:
            return ()
        alive = [key for key, on in zip(keys, standing.alive, strict=True) if on]
        order = sorted([*alive, *new], key=lambda key: key != self.contenders.plain)
        return tuple(key for key in order if key not in failed)

    def _serve(self, visit: Visit) -> None:
        """Serve a plan and make its runs, or record that it failed."""
        candidate, start = self.contenders[visit.key], time.monotonic()
        assert candidate.plan is not None, "it has a price"
        deployment = self.deploy(candidate.plan)
        folder = self.folder / f"{candidate.method}-{visit.key[:8]}"
        for name, text in deployment.files.items():
            write_atomic(folder / name, text)
        commands = self.commands
        if not commands.serve:
            commands = Commands(commands.url, deployment.serve, commands.stop, commands.timeout)
        recorded = 0.0
        try:
            with Server(commands, folder, self.folder / "server.json") as server:
                widest = max(load for load, _ in visit.runs)
                self._measure(server, visit.key, deployment, folder, widest, -1)
                for load, turn in visit.runs:
                    if recorded and self.spent(self.log.trials()) >= self.budget:
                        return
                    run = self._measure(server, visit.key, deployment, folder, load, turn)
                    taken = time.monotonic() - start - recorded
                    self.log.add(trial := self._trial(visit.key, load, turn, run, taken))
                    recorded += trial.seconds + trial.warming
        except ServingError as error:
            seconds = max(time.monotonic() - start - recorded, 0.0)
            about = (candidate.method, candidate.words, error.what, error.log, seconds)
            self.log.add_failure(Failure(self.machine, visit.key, *about))

    def _check_plain(self, trials: Sequence[Trial]) -> None:
        """Refuse to go on where plain decoding failed before it ran: everything else would."""
        plain = self.contenders.plain
        failed = [failure for failure in self.log.failures() if failure.plan == plain]
        if failed and not any(trial.plan == plain for trial in trials):
            raise UsageError(
                f"plain decoding failed: {failed[-1].reason}",
                where=str(self.folder),
                remedy="Mend the command or the engine, and add --retry-failed. The end of the "
                f"log:\n{failed[-1].log}",
            )

    def _measure(
        self,
        server: Server,
        key: str,
        deployment: Deployment,
        folder: Path,
        load: Load,
        turn: int,
    ) -> ServedRun:
        """One run of the benchmark; that of turn -1 warms the server up and is short."""
        batch, longest = load
        count = min(len(self.texts), max(LEAST_REQUESTS, WAVES * batch))
        seed = f"{self.seed} {self.machine} {load}"
        texts = prompts_of(self.texts, count, max(turn, 0), seed)
        place = folder / ("warm-up" if turn < 0 else f"b{batch}-p{longest}-{turn}")
        shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
        write_atomic(place / PROMPTS, "".join(map(prompt_line, texts)))
        output = WARM_UP_TOKENS if turn < 0 else self.output_tokens
        server.run(
            deployment.bench,
            place,
            {
                "BATCH": str(batch),
                "REQUESTS": str(count),
                "PROMPT_TOKENS": str(longest),
                "OUTPUT_TOKENS": str(min(output, self.output_tokens)),
                "SEED": str(max(turn, 0)),
                "PROMPTS": str(place / PROMPTS),
                "RESULT": str(place / "result"),
            },
        )
        try:
            run = read_run(place, batch, deployment.draft_tokens)
        except UsageError as error:
            raise ServingError(str(error), log_end(place / "bench.log")) from error
        plain = key == self.contenders.plain
        if run.tokens_per_round is None or plain:
            # an engine that does not count rounds leaves the estimate as it is
            estimate = self.contenders[key].estimates[self.contenders.loads.index(load)]
            tokens = 1.0 if plain else estimate.tokens_per_round.mean
            run = replace(run, tokens_per_round=tokens)
        return run

    def _trial(self, key: str, load: Load, turn: int, run: ServedRun, taken: float) -> Trial:
        """A run as a trial; `taken` are all seconds since the run before."""
        seconds = run.request_seconds * run.requests / load[0]
        tokens = round(run.output_tokens * run.requests)
        assert run.tokens_per_round is not None, "set by `_measure`"
        return self.trial(
            key,
            load,
            turn,
            seconds=seconds,
            tokens=tokens,
            rounds=round(tokens / run.tokens_per_round),
            warming=max(taken - seconds, 0.0),
        )
