"""Tuning on a serving engine: its own runs decide among the plans that it can express."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.backends.engines.probe import client_of
from specplan.backends.engines.registry import project
from specplan.backends.engines.table import Table
from specplan.backends.engines.writing import check_documents, render
from specplan.emitting.jobs import job_of
from specplan.emitting.projecting import write_chosen
from specplan.ir.errors import NothingToCompareError, UsageError
from specplan.ir.files import check_destination, name_of
from specplan.progress import Progress, silent
from specplan.tuning import MINUTES, Tuned, tuned_by

if TYPE_CHECKING:
    from specplan.backends.engines.job import Emission, Job
    from specplan.backends.engines.probe import Client
    from specplan.ir.plan import Plan
    from specplan.measure.tuning.engine_race import Deployment, EngineRace
    from specplan.planner import SearchResult
    from specplan.planner.problem.schema import Problem
    from specplan.problems import ProblemLike

TIMEOUT = 900.0


@dataclass(frozen=True)
class EngineCommands:
    """Commands for `sh`; each gets $URL and $FOLDER, that of the engine's files.

    Attributes:
        serve: starts the server; "" for the command that `specplan emit` writes.
        bench: measures it, see docs/tune.md; "" for the engine's own load generator.
        stop: stops it; "" for ending the process of `serve`.
        url: of the server; "" for the engine's usual port on this machine.
        timeout: seconds until a server that does not answer, or a run that does not end, has
            failed.
    """

    serve: str = ""
    bench: str = ""
    stop: str = ""
    url: str = ""
    timeout: float = TIMEOUT


def tune_engine(
    problem: ProblemLike,
    engine: str,
    commands: EngineCommands | None = None,
    *,
    minutes: float = MINUTES,
    out: Path | str | None = None,
    storage: str | None = None,
    machine: str | None = None,
    any_version: bool = False,
    prompts: Path | str | None = None,
    retry_failed: bool = False,
    progress: Progress = silent,
) -> Tuned:
    """Find the fastest plan of a problem on an engine by serving the likely ones in turn.

    Every run is recorded before it counts: called again after whatever ended it, it goes on. What
    was measured is kept for `optimize` on the problem's device.

    Args:
        problem: with a named device and stated acceptance; no model runs here.
        engine: `NAME` or `NAME@VERSION`, as `emit` takes it.
        commands: that start, measure and stop the engine; default those that are known of it.
        minutes: of starts and runs on this machine, those of earlier calls counted.
        out: write the files of the engine for the best plan to this folder, as `emit` does.
        storage: of the trials, as `tune` takes it.
        machine: name of this machine among those that share the study; None for its host name.
        any_version: write for the newest known version when the one asked for is not known.
        prompts: JSON Lines of text to run on, {"text": ...}; those of the problem by default.
        retry_failed: serve plans again that failed before.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem, the engine or a command is broken, or plain decoding cannot be
            served.
        UndecidedError: no acceptance is known for any drafter that the problem lists.
        InfeasibleError: no plan keeps the limits.
        NothingToCompareError: there are fewer prompts than a batch has requests.
        KeyboardInterrupt: the user ended it before the first run was recorded.
    """
    if not minutes > 0.0:
        raise UsageError("a tuning needs time", where="minutes", remedy="Give more than 0.")
    from specplan.problems import as_problem

    if out is not None:
        check_destination(Path(out).resolve(), "projection.json", "projection")
    checked = as_problem(problem)
    texts = _texts(checked, prompts)
    searched, table = _searched(checked, engine, any_version, progress)
    race = _race(searched, table, commands or EngineCommands(), texts, storage)
    race.budget, race.machine, race.progress = 60.0 * minutes, machine or platform.node(), progress
    if retry_failed:
        race.log.add_failure(None)
    return _tuned(searched, table, race, race.interrupted(), out)


def _texts(problem: Problem, prompts: Path | str | None) -> tuple[str, ...]:
    """Prompts to run on: of a file, or those of the problem that no benchmark compares on."""
    from specplan.measure.workbench import PROFILE, chosen_prompts
    from specplan.planner import read_prompts

    chosen = chosen_prompts(problem, PROFILE) if prompts is None else read_prompts(Path(prompts))
    return tuple(prompt.text_alone for prompt in chosen)


def _searched(
    problem: Problem, engine: str, any_version: bool, progress: Progress
) -> tuple[SearchResult, Table]:
    """The search among what the engine can express, priced as the engine runs it."""
    from specplan.gathering import gather
    from specplan.planner.search.search import search
    from specplan.problems import on_used_devices, table_for
    from specplan.result import check_decided

    if problem.device == "measured":
        raise UsageError(
            "an engine is tuned on a named device, and this one is the machine here",
            where="device",
            remedy="Name the device, such as 8xh100-sxm or cpu-generic (`specplan devices`); "
            "without --engine, plans run here.",
        )
    table = table_for(problem, engine, any_version=any_version)
    workload = problem.workload.model_copy(update={"prompts": None})  # nothing is measured here
    changes: dict[str, Any] = {"backend": table.engine, "backends": (), "workload": workload}
    problem = on_used_devices(problem.model_copy(update=changes), table)
    facts = replace(gather(problem, progress, tuned=False), capabilities=table)
    searched = search(facts, lambda done, total: progress("pricing candidates", done, total))
    check_decided(searched.undecided, "a contest", "specplan tune --engine")
    return searched, table


def _race(
    searched: SearchResult,
    table: Table,
    commands: EngineCommands,
    texts: tuple[str, ...],
    storage: str | None,
) -> EngineRace:
    from specplan.measure.tuning.contenders import Contenders
    from specplan.measure.tuning.engine_race import EngineRace
    from specplan.measure.tuning.server import Commands
    from specplan.measure.tuning.study import open_log

    problem = searched.facts.problem
    assert searched.plain.plan is not None, "it has a price"
    client = _client(table, job_of(table, problem, searched.plain.plan), commands)
    contenders = Contenders(searched)
    largest = max(batch for batch, _ in contenders.loads)
    if len(texts) < largest:
        raise NothingToCompareError(
            f"{len(texts)} prompts do not fill a batch of {largest}",
            where="workload.prompts",
            remedy="Give more prompts, or tune smaller batches.",
        )
    url = (commands.url or f"http://127.0.0.1:{client.port if client else 0}").rstrip("/")
    deploy = partial(_deployment, table, problem, commands.bench)
    output = problem.workload.output_tokens or 128
    name = _study(searched, table, commands, (output, texts))
    folder = problem.profiles / "tuning" / name
    return EngineRace(
        contenders=contenders,
        log=open_log(storage, problem.profiles / "tuning" / "journal.log", name),
        machine=platform.node(),
        budget=60.0 * MINUTES,
        seed=problem.seed,
        deploy=deploy,
        commands=Commands(url, commands.serve, commands.stop, commands.timeout),
        texts=texts,
        output_tokens=output,
        folder=folder,
    )


def _client(table: Table, job: Job, commands: EngineCommands) -> Client | None:
    """The engine's own load generator; None where the user names another and the address."""
    if commands.bench and commands.url:
        return None
    try:
        return client_of(table, job)
    except UsageError as error:
        raise UsageError(
            f"specplan does not know how {table.title} is measured",
            where="--bench" if commands.url else "--url",
            remedy="Name the server's address and a command that measures it: --url "
            "http://127.0.0.1:8080 --bench 'vllm bench serve --base-url \"$URL\" ...' "
            "(docs/tune.md).",
        ) from error


def _study(
    searched: SearchResult, table: Table, commands: EngineCommands, prompts: Sequence[Any]
) -> str:
    """Name of the study of these models, prompts, commands and settings on such devices."""
    facts = searched.facts
    workload = facts.problem.workload
    about = [
        {role: [shape.digest, shape.dtype] for role, shape in facts.shapes.items()},
        [table.engine, table.asked or table.version, facts.problem.device],
        [commands.serve, commands.bench, commands.url],
        [workload.temperature, workload.top_k, workload.top_p, facts.problem.seed],
        prompts,
    ]
    return f"specplan-{table.engine}-{name_of(json.dumps(about, sort_keys=True, default=str))}"


def _deployment(table: Table, problem: Problem, bench: str, plan: Plan) -> Deployment:
    """Files and commands of a plan, with the engine's own load generator for an empty `bench`."""
    from specplan.measure.tuning.engine_race import Deployment

    job = job_of(table, problem, plan)
    emission: Emission = project(table, job)
    check_documents(table.engine, emission)
    flags = ""
    if not bench:
        client = client_of(table, job)
        flags = client.flags
        variables = {name: f'"${name.upper()}"' for name in ("requests", "batch", "output_tokens")}
        bench = client.own.format(result='"$RESULT"', **variables)
    chain = job.drafting.shape == "chain" and not job.ranges
    drafts = job.drafting.tokens if chain else None if job.drafting.tokens else 0
    return Deployment(render(emission), f"exec {emission.command}{flags}", bench, drafts)


def _tuned(
    searched: SearchResult,
    table: Table,
    race: EngineRace,
    interrupted: bool,
    out: Path | str | None,
) -> Tuned:
    """The answer by all trials; what was measured is stored for the searches to come."""
    from specplan.planner.measured.store import add_plans

    about = {"engine": f"{table.title} {table.asked or table.version}"}
    done = tuned_by(searched, race, about, partial(add_plans, searched.facts), interrupted)
    done = replace(done, failures=race.log.failures(), folder=race.folder)
    if out is None:
        return done
    return replace(done, projection=write_chosen(table, done.result.search, Path(out).resolve()))
