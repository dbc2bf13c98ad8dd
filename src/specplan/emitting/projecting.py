"""Projecting a plan onto an engine: its files, or those of the best plan that it can express."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.backends.bundle import Bundle
from specplan.backends.engines.job import Emission, Load
from specplan.backends.engines.registry import open_table, project
from specplan.backends.engines.report import Choice, Projection, write_projection
from specplan.backends.engines.table import Table
from specplan.backends.manifest import MANIFEST
from specplan.bundles.report import reading_report
from specplan.bundles.writing import open_bundle
from specplan.cost_models.devices.device import device_count
from specplan.cost_models.intervals import Interval
from specplan.emitting.jobs import job_of
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import check_destination
from specplan.ir.plan import Plan
from specplan.planner.answer.names import EDITED, plan_name
from specplan.planner.search.candidates import estimate_as_dict
from specplan.planner.search.comparing import on_common_loads, speedup
from specplan.planner.search.search import SearchResult, search
from specplan.problems import (
    as_problem,
    copied_drafters,
    on_used_devices,
    table_for,
    with_shared_drafters,
)
from specplan.progress import Progress, silent
from specplan.result import check_decided

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Problem
    from specplan.planner.search.candidates import Candidate
    from specplan.problems import ProblemLike


def emit(
    source: Bundle | ProblemLike,
    engine: str,
    *,
    out: Path | str,
    any_version: bool = False,
    progress: Progress = silent,
) -> Projection:
    """Write what an engine needs to serve a plan.

    A bundle's plan is taken as it is where the engine can express it. Otherwise, and for a problem,
    the search chooses; a chosen plan that the engine cannot express gives way to the best one that
    it can, and the projection tells what is lost.

    Args:
        source: a bundle or its folder, or a problem.
        engine: `NAME`, for the newest version that is known, or `NAME@VERSION`.
        out: folder for the files; it may hold an earlier projection.
        any_version: write for the newest known version when the one asked for is not known.
        progress: called during everything that takes long.

    Raises:
        UsageError: the engine or its version is not known, or the problem or bundle is broken.
        InfeasibleError: no plan keeps the limits.
        UndecidedError: no acceptance is known for any drafter that the problem lists.
        MissingCapabilityError: the engine cannot even decode plainly.
    """
    open_table(engine, any_version=any_version)  # before anything is read
    folder = Path(out).resolve()
    check_destination(folder, "projection.json", "projection")
    bundle = bundle_of(source)
    if bundle is None:
        assert not isinstance(source, Bundle)
        problem = as_problem(source)
        table = table_for(problem, engine, any_version=any_version)
    else:
        from specplan.bundles.contest import problem_of

        problem = problem_of(bundle)
        choice = _choice_of_bundle(bundle)
        table = table_for(problem, engine, any_version=any_version)
        if not _reasons(table, problem, bundle.plan):
            return _written(table, problem, choice, choice, None, (), folder)
        if choice.method == EDITED:
            _check_expressed(table, problem, bundle.plan)
    return _searched(table, problem, bundle, folder, progress)


def emit_edited(
    plan: Plan,
    problem: ProblemLike,
    engine: str,
    *,
    out: Path | str,
    any_version: bool = False,
    progress: Progress = silent,
) -> Projection:
    """Write what an engine needs to serve a plan that a person wrote or edited.

    Args:
        plan: it is verified and priced here.
        problem: a problem, the path of a problem file, or its content as a mapping.
        engine: `NAME`, for the newest version that is known, or `NAME@VERSION`.
        out: folder for the files; it may hold an earlier projection.
        any_version: write for the newest known version when the one asked for is not known.
        progress: called during everything that takes long.

    Raises:
        UsageError: the engine or its version is not known, or the plan or the problem is broken.
        MissingCapabilityError: the engine cannot express the plan; says which op.
    """
    from specplan.edited import price_edited

    checked = as_problem(problem)
    table = table_for(checked, engine, any_version=any_version)
    folder = Path(out).resolve()
    check_destination(folder, "projection.json", "projection")
    _check_expressed(table, checked, plan)
    return write_chosen(table, price_edited(plan, checked, progress).search, folder)


def write_chosen(table: Table, result: SearchResult, folder: Path) -> Projection:
    """Write what an engine needs to serve the plan that a search chose, which it can express."""
    choice = _choice(result, result.chosen)
    return _written(table, result.facts.problem, choice, choice, None, (), folder)


def _check_expressed(table: Table, problem: Problem, plan: Plan) -> None:
    """Refuse an edited plan that an engine does not serve: no other stands in for it."""
    reasons = _reasons(table, problem, plan)
    if reasons:
        raise MissingCapabilityError(
            f"{table.title} cannot serve the edited plan: {reasons[0]}",
            where=f"plan {plan.name}",
            remedy="Edit the plan, or give the problem alone for the best plan that it can serve.",
        )


def _reasons(table: Table, problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Why the engine cannot serve a plan of the problem on its devices; empty where it can."""
    devices = device_count(problem.device)
    alone: tuple[str, ...] = ()
    if devices > 1 and not table.shares:
        alone = (f"device: it runs a model on one device, and the plan shares it among {devices}",)
    return (*alone, *(refusal.words for refusal in table.refusals(plan)))


def bundle_of(source: Bundle | ProblemLike) -> Bundle | None:
    """The bundle that was given, or that lies in the folder; None for a problem."""
    if isinstance(source, Bundle):
        return open_bundle(source)
    if isinstance(source, str | Path) and (Path(source).is_dir() or Path(source).name == MANIFEST):
        return open_bundle(source)
    return None


def _searched(
    table: Table, problem: Problem, bundle: Bundle | None, folder: Path, progress: Progress
) -> Projection:
    """The best plan as the problem has it, and the best that the engine can express."""
    from specplan.gathering import gather

    def pricing(done: int, total: int) -> None:
        progress("pricing candidates", done, total)

    facts = gather(problem, progress)
    problem, runner = facts.problem, facts.capabilities
    if bundle is None and (runner is None or runner.shares):
        facts = replace(facts, capabilities=None)  # a problem asks for the best plan of all
    whole = search(facts, pricing)
    check_decided(whole.undecided, "an engine's files", "specplan emit")
    wanted = _of_bundle(whole, bundle)
    assert wanted.plan is not None, "what is chosen has a plan"
    copied = copied_drafters(whole.facts.problem)
    reasons = _reasons(replace(table, copied=copied), problem, wanted.plan)
    if not reasons:
        choice = _choice(whole, wanted)
        return _written(table, problem, choice, choice, None, (), folder)
    problem = with_shared_drafters(on_used_devices(problem, table))
    table, facts = replace(table, copied=copied_drafters(problem)), gather(problem, progress)
    own = search(replace(facts, capabilities=table), pricing)
    ratio = speedup(*on_common_loads(own.chosen, wanted), facts.objective)
    chosen, emitted = _choice(whole, wanted), _choice(own, own.chosen)
    return _written(table, problem, chosen, emitted, ratio, reasons, folder)


def _of_bundle(whole: SearchResult, bundle: Bundle | None) -> Candidate:
    """The candidate whose plan is the bundle's; the chosen one for a problem.

    Raises:
        UsageError: what the bundle was planned from has changed.
    """
    if bundle is None:
        return whole.chosen
    for candidate in (whole.chosen, *whole.candidates):
        if candidate.plan == bundle.plan and candidate.priced:
            return candidate
    raise UsageError(
        "its plan is no longer among the candidates: what it was planned from has changed",
        where=str(bundle.folder),
        remedy="Run `specplan optimize` again, or give the problem instead of the bundle.",
    )


def _choice(result: SearchResult, candidate: Candidate) -> Choice:
    assert candidate.plan is not None, "only plans are chosen"
    estimates = [estimate_as_dict(estimate) for estimate in candidate.estimates]
    gain = speedup(candidate, result.plain, result.facts.objective)
    loads, assumed = _loads(estimates), result.assumed
    name = plan_name(candidate.as_dict())
    return Choice(candidate.plan, candidate.method, candidate.words, name, gain, loads, assumed)


def _choice_of_bundle(bundle: Bundle) -> Choice:
    """A bundle's plan with what its report says of it."""
    with reading_report(bundle):
        report = bundle.report
        entry = report["candidates"][report["chosen"]]
        gain, loads = Interval(**report["explanation"]["speedup"]), _loads(entry["estimates"])
        assumed = report["explanation"].get("assumed", {})
        name = plan_name(entry)
        return Choice(bundle.plan, entry["method"], entry["words"], name, gain, loads, assumed)


def _loads(estimates: list[dict[str, Any]]) -> tuple[Load, ...]:
    return tuple(
        Load(
            batch=int(estimate["batch"]),
            prompt_tokens=int(estimate["prompt_tokens"]),
            output_tokens=int(estimate["output_tokens"]),
            tokens_per_round=Interval(**estimate["tokens_per_round"]),
            tokens_per_second=Interval(**estimate["tokens_per_second"]),
        )
        for estimate in estimates
    )


def _written(
    table: Table,
    problem: Problem,
    chosen: Choice,
    emitted: Choice,
    ratio: Interval | None,
    refusals: tuple[str, ...],
    folder: Path,
) -> Projection:
    job = job_of(table, problem, emitted.plan, emitted.loads)
    made: Emission = project(table, job)
    emission = replace(made, notes=(*made.notes, *job.assumptions))
    projection = Projection(
        table, problem.objective, chosen, emitted, ratio, refusals, emission, job.sampling, folder
    )
    write_projection(projection)
    return projection
