"""Writing a probe: which servers are measured, at which operating points, on which text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.backends.engines.probe import (
    MOST_PROMPTS,
    STATEMENT,
    Arm,
    Point,
    Probe,
    client_of,
    write_probe,
)
from specplan.backends.engines.probe import PLAIN as PLAIN_ARM
from specplan.backends.engines.registry import open_table
from specplan.backends.engines.structure import read_structure
from specplan.backends.engines.table import Table
from specplan.emitting.jobs import job_of
from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.cost_models.acceptance.drafters import Drafter
    from specplan.planner.facts import ProblemFacts
    from specplan.planner.problem.schema import Problem
    from specplan.problems import ProblemLike

DRAFT_TOKENS = 5
"""Draft tokens per step (K) of a probe: engines count what they accept at each position."""
_ASSUMED = 0.7
"""Acceptance of the drafters while settings are listed; no figure of a probe depends on it."""


def probe(
    source: Bundle | ProblemLike,
    engine: str,
    *,
    out: Path | str,
    any_version: bool = False,
    draft_tokens: int = DRAFT_TOKENS,
    prompts: Path | str | None = None,
) -> Probe:
    """Write the commands that measure a running engine, without speculation and with each drafter.

    Args:
        source: a problem, or a bundle or its folder. No acceptance needs to be known.
        engine: `NAME` or `NAME@VERSION`, as `emit` takes it.
        out: folder for the files; it may hold an earlier probe that has no results.
        any_version: write for the newest known version when the one asked for is not known.
        draft_tokens: per step (K), or the nearest that a drafter has.
        prompts: JSON Lines of text to draft on, {"text": ...}; those of the problem by default, and
            public ones where it has none.

    Raises:
        UsageError: the engine is not known or has no load generator that is known, nothing of the
            problem drafts there, or the problem is of this machine.
    """
    table, folder = open_table(engine, any_version=any_version), Path(out).resolve()
    check_destination(folder, STATEMENT, "probe")
    if (folder / "results").exists():
        raise UsageError(
            "the folder holds results of an earlier probe",
            where=str(folder),
            remedy="Import them (`specplan import probe`), and choose another folder for --out.",
        )
    problem = _problem(source)
    facts = facts_of(problem, table)
    arms = tuple(_arms(facts, table, draft_tokens))
    client_of(table, arms[0].job)
    if len(arms) == 1:
        raise UsageError(
            f"no drafter of the problem can be measured on {table.title}",
            where="models.drafts",
            remedy="Add a draft model or head that it serves (`specplan engines "
            f"{table.engine}`), or `mtp` in sources.",
        )
    texts, stated = _texts(problem, prompts), problem.model_dump(mode="json")
    probe = Probe(table, arms, _points(facts), texts, stated, folder)
    write_probe(probe)
    return probe


def _problem(source: Bundle | ProblemLike) -> Problem:
    from specplan.bundles.contest import problem_of
    from specplan.emitting.projecting import bundle_of
    from specplan.problems import as_problem

    bundle = bundle_of(source)
    problem = as_problem(source) if bundle is None else problem_of(bundle)  # type: ignore[arg-type]
    if problem.device == "measured":
        raise UsageError(
            "a probe measures an engine on a named device, and this one is the machine here",
            where="device",
            remedy="Name the device, such as 8xh100-sxm (`specplan devices`); for this machine "
            "there is `specplan profile`.",
        )
    return problem


def facts_of(problem: Problem, table: Table | None) -> ProblemFacts:
    """Facts of the problem without its prompts, on which nothing is to be measured here."""
    from specplan.planner.facts import gather_facts

    workload = problem.workload.model_copy(update={"prompts": None})
    stated = problem.model_copy(update={"workload": workload, "acceptance": {}})
    return gather_facts(stated, capabilities=table)


def _arms(facts: ProblemFacts, table: Table, draft_tokens: int) -> Iterator[Arm]:
    from specplan.planner.measured.served import plain_plan
    from specplan.planner.search.what_if import listed_drafters

    plan, method, words = plain_plan(facts)
    yield Arm(PLAIN_ARM, "", 0, method, words, job_of(table, facts.problem, plan))
    for drafter in listed_drafters(facts):
        arm = _chain(facts, table, drafter, draft_tokens)
        if arm is not None:
            yield arm


def _chain(facts: ProblemFacts, table: Table, drafter: Drafter, draft_tokens: int) -> Arm | None:
    """The plan that drafts a chain of that many tokens, or nearly; None where there is none."""
    from specplan.cost_models.acceptance.fits.assumed import assume_rate
    from specplan.planner.drafters.profiles import acceptance_key
    from specplan.planner.search.settings import settings_by

    key = acceptance_key(facts.problem, facts.shapes, drafter)
    assumed = replace(facts, profiles={drafter: assume_rate(_ASSUMED, key)})
    chains: list[Arm] = []
    for setting in settings_by(assumed, drafter):
        plan = setting.method.written(assumed, setting.options)
        drafting = read_structure(plan).longest
        if drafting.shape == "chain" and not table.refusals(plan):
            job = job_of(table, facts.problem, plan)
            words = setting.options.words
            chains.append(
                Arm(str(drafter), str(drafter), drafting.tokens, setting.method.name, words, job)
            )
    return min(chains, key=lambda arm: abs(arm.draft_tokens - draft_tokens), default=None)


def _points(facts: ProblemFacts) -> tuple[Point, ...]:
    """The operating points of the problem that fit on the device without speculation."""
    from specplan.planner.search.settings import fitting_pricer, pricer_of, settings_by

    plain = next(settings_by(facts, None))
    pricer, _ = fitting_pricer(facts, pricer_of(facts), [plain])
    output = round(pricer.output_tokens)
    pairs = zip(pricer.batch.tolist(), pricer.prompt_tokens.tolist(), strict=True)
    return tuple(Point(int(batch), round(prompt), output) for batch, prompt in pairs)


def _texts(problem: Problem, prompts: Path | str | None) -> tuple[str, ...]:
    """Texts to draft on, as many as a probe takes."""
    from specplan.planner.problem.workload import read_prompts

    task = "" if prompts else problem.workload.task
    path = prompts or problem.workload.prompts
    if path is None:
        return ()
    texts = [prompt.text_alone for prompt in read_prompts(Path(path)) if task in ("", prompt.task)]
    return tuple(texts[:MOST_PROMPTS])
