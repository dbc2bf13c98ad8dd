"""Tuning: the search proposes plans, and runs of them on real prompts decide."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.backends.engines.report import Projection
    from specplan.cost_models.devices.measured.table import Provenance
    from specplan.ir.plan import Plan
    from specplan.measure.bench.contenders import Timer
    from specplan.measure.tuning.contest import Contest
    from specplan.measure.tuning.outcome import Line
    from specplan.measure.tuning.race import Race
    from specplan.measure.tuning.study import Failure, Trial, TrialLog
    from specplan.measure.workbench import TokenPrompt, Workbench
    from specplan.planner import SearchResult
    from specplan.planner.measured.plans import MeasuredPlans
    from specplan.problems import ProblemLike
    from specplan.result import Result

MINUTES = 10.0


@dataclass(frozen=True)
class Tuned:
    """The plan that measurement decided for.

    Attributes:
        result: the choice, with prices that what was measured set right.
        lines: every plan that ran, load by load, the fastest first.
        minutes: of runs on this machine, in all processes.
        trials: recorded, of all machines.
        storage: where they are.
        study: their name there.
        decided: whether no other plan is likely to be faster by more than a tie.
        interrupted: whether the user ended it.
        failures: plans that an engine did not serve; none where plans run here.
        folder: of an engine's files and logs; None where plans run here.
        projection: the files of an engine for the plan; None when nothing was asked for.
    """

    result: Result
    lines: tuple[Line, ...]
    minutes: float
    trials: int
    storage: str
    study: str
    decided: bool
    interrupted: bool
    failures: tuple[Failure, ...] = ()
    folder: Path | None = None
    projection: Projection | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.result.plan

    @property
    def bundle(self) -> Bundle | None:
        """What was written; None when nothing was asked for."""
        return self.result.bundle

    def report(self) -> dict[str, Any]:
        """What was measured, as JSON data."""
        return {
            "lines": [asdict(line) for line in self.lines],
            "minutes": self.minutes,
            "trials": self.trials,
            "study": self.study,
            "decided": self.decided,
            "interrupted": self.interrupted,
            "failures": [asdict(failure) for failure in self.failures],
        }

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON data: the plan as text, why, and what was measured."""
        return {**self.result.as_dict(), "tuning": self.report() | {"storage": self.storage}}


def tune(
    problem: ProblemLike,
    *,
    minutes: float = MINUTES,
    out: Path | str | None = None,
    storage: str | None = None,
    machine: str | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Find the fastest plan of a problem by running the likely ones against each other.

    Every run is recorded before it counts: called again after whatever ended it, it goes on. One
    interrupt ends it with the best plan so far. What was measured is kept for `optimize`.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping; with
            `workload.prompts`.
        minutes: of runs on this machine, those of earlier calls counted.
        out: write a bundle to this folder.
        storage: a journal file, or a URL of a database as optuna takes it, which several machines
            may share; None for a journal in the problem's `profiles` folder.
        machine: name of this machine among those that share the study; None for its host name.
        progress: told of everything that takes long.

    Raises:
        UsageError: the problem is broken, naming its key; or `out` or `storage` holds something
            else.
        InfeasibleError: no plan keeps the limits.
        MissingCapabilityError: measuring needs an extra, or the backend runs no plan at all.
        NothingToCompareError: there are fewer prompts than a batch has requests.
        KeyboardInterrupt: the user ended it before the first run was recorded.
    """
    if not minutes > 0.0:
        raise UsageError("a tuning needs time", where="minutes", remedy="Give more than 0.")
    from specplan.bundles.writing import check_out, write_result
    from specplan.gathering import gather
    from specplan.planner.measured.store import plans_path
    from specplan.planner.search.search import search
    from specplan.problems import as_problem, check_runs, check_tunes

    checked = as_problem(problem)
    check_tunes(checked)
    check_runs(checked)
    check_out(checked, out)
    facts = gather(checked, progress, tuned=False)
    searched = search(facts, lambda done, total: progress("pricing candidates", done, total))
    contest, here = _contest(searched, minutes, storage, machine or platform.node(), progress)
    interrupted, path = contest.interrupted(), plans_path(searched.facts, here)
    about = {"machine": asdict(here)}
    done = tuned_by(searched, contest, about, lambda plans: plans.save(path), interrupted)
    if out is None:
        return done
    bundle = write_result(done.result, Path(out), {"tuning": done.report()})
    return replace(done, result=replace(done.result, bundle=bundle))


@dataclass(frozen=True)
class _Runner:
    """What runs the contenders.

    Attributes:
        machine: this one, with that software.
        timer: makes a plan's timed runs.
        compiles: whether the first run of a plan at a load compiles it.
    """

    machine: Provenance
    timer: Callable[[Plan], Timer]
    compiles: bool


def _runner(bench: Workbench, loads: Sequence[tuple[int, int]]) -> _Runner:
    """The problem's backend if it compiles rounds, else the interpreter."""
    from specplan.backends.registry import round_backend
    from specplan.measure.bench.contenders import compiled_timer, plan_timer
    from specplan.measure.device.profile import machine_of
    from specplan.problems import compilers_of

    here = machine_of(bench)
    for name in compilers_of(bench.problem):
        machine = here.compiled_by(name, round_backend(name).version)
        return _Runner(machine, partial(compiled_timer, bench, name, loads), compiles=True)
    return _Runner(here, partial(plan_timer, bench), compiles=False)


def _contest(
    searched: SearchResult, minutes: float, storage: str | None, machine: str, progress: Progress
) -> tuple[Race, Provenance]:
    from specplan.runtime import require_torch

    require_torch()
    from specplan.measure.tuning.contenders import Contenders
    from specplan.measure.tuning.race import Race
    from specplan.measure.workbench import PROFILE, Workbench
    from specplan.planner import measured_here

    bench = Workbench(measured_here(searched.facts.problem))
    prompts, contenders = bench.prompts(PROFILE), Contenders(searched)
    runner = _runner(bench, contenders.loads)
    contest = Race(
        contenders=contenders,
        log=_log(bench, prompts, storage, runner),
        timer=runner.timer,
        compiles=runner.compiles,
        prompts=prompts,
        machine=machine,
        budget=60.0 * minutes,
        seed=bench.problem.seed,
        progress=progress,
    )
    return contest, runner.machine


def _log(
    bench: Workbench, prompts: Sequence[TokenPrompt], storage: str | None, runner: _Runner
) -> TrialLog:
    """The study of these models, prompts and settings on machines and software of this kind."""
    from specplan.measure.tuning.study import open_log

    workload, here = bench.problem.workload, runner.machine
    name = bench.fingerprint(
        "tuning",
        (workload.temperature, workload.top_k, workload.top_p, bench.problem.seed),
        bench.output_tokens,
        [prompt.tokens for prompt in prompts],
        (here.hardware, here.threads, here.versions),
        *((here.backend,) if runner.compiles else ()),
    )
    journal = bench.problem.profiles / "tuning" / "journal.log"
    return open_log(storage, journal, f"specplan-{name}")


def tuned_by(
    searched: SearchResult,
    contest: Contest,
    about: Mapping[str, Any],
    keep: Callable[[MeasuredPlans], object],
    interrupted: bool,
) -> Tuned:
    """The answer by all trials.

    Args:
        searched: what proposed the plans.
        contest: that they ran in.
        about: where, for the provenance of what was measured.
        keep: stores that for the searches to come.
        interrupted: whether the user ended it.
    """
    from specplan.measure.tuning.outcome import lines, measured_plans
    from specplan.planner import tuned
    from specplan.result import Result

    trials: tuple[Trial, ...] = contest.log.trials()
    contest.contenders.recall(trials)
    plans = measured_plans(
        contest, trials, {"study": contest.log.name, "trials": len(trials), **about}
    )
    keep(plans)
    loads = contest.contenders.loads
    return Tuned(
        result=Result(tuned(searched, plans, contest.contenders.untried)),
        lines=tuple(lines(contest, trials)),
        minutes=contest.spent(trials) / 60.0,
        trials=len(trials),
        storage=contest.log.where,
        study=contest.log.name,
        decided=all(contest.standing(load, trials)[1].decided for load in loads),
        interrupted=interrupted,
    )
