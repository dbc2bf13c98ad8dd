"""What a well-formed problem may still get wrong: names, combinations, files and limits.

Every check yields an error for each thing that is wrong, or raises the error of a file that it
reads; `check_problem` raises all of them together, one for each key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.drafters import Model, Source
from specplan.cost_models.acceptance.old_profiles import drafter_of_old_name
from specplan.ir.errors import SpecplanError
from specplan.ir.ops import OPS
from specplan.ir.plan import MODULE_PREFIX
from specplan.planner.drafters.candidates import measured_here, named_drafters
from specplan.planner.method import Method, discover_methods
from specplan.planner.problem.errors import (
    Errors,
    Origin,
    collected,
    nearest,
    raise_together,
)
from specplan.planner.problem.model_checks import check_models
from specplan.planner.problem.models import DRAFT_NAME
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.setting_checks import (
    check_backends,
    check_device,
    check_folders,
    check_formats,
    check_placement,
    check_pool,
    check_quality,
    check_sharing,
)
from specplan.planner.problem.workload import (
    check_prompts,
    check_request_rate,
    check_workload,
)

RESERVED_NAMES = frozenset(OPS) | {
    "target", "prompt_lookup", "plan", "model", "state", "round", "rows",
    "schedule", "assume", "yield", "until", "otherwise", "all", "none", "true", "false",
    "request", "root", "accept", "draft_model", "autoregressive",
}  # fmt: skip
"""Words of the plan language, which a draft cannot bear as its name."""


def check_problem(problem: Problem, origin: Origin = Origin()) -> None:  # noqa: B008
    """Refuse a problem that names what does not exist or asks for what cannot be.

    Args:
        problem: a problem whose paths are absolute.
        origin: where it was written, for messages.

    Raises:
        UsageError: naming the dotted keys of everything that is wrong.
        InfeasibleError: when a limit is below what any plan needs.
        MissingCapabilityError: when a model has an architecture that is not supported.
    """
    errors = word_errors(problem, origin)
    runs = not errors and needs_running(problem)
    later = (
        check_backends(problem, origin, runs_models=True) if runs else (),
        check_models(problem, origin, weights_needed=runs),
        check_prompts(problem, origin),
    )
    raise_together([*errors, *(error for check in later for error in collected(check))], origin)


def word_errors(problem: Problem, origin: Origin) -> list[SpecplanError]:
    """What is wrong with the words of a problem and the files that it names, models left out."""
    of_names = list(_check_draft_names(problem, origin))
    checks = (
        () if of_names else _check_drafters(problem, origin),
        _check_methods_and_sources(problem, origin),
        check_device(problem, origin),
        check_backends(problem, origin, runs_models=False),
        check_formats(problem, origin),
        check_placement(problem, origin),
        check_pool(problem, origin),
        check_sharing(problem, origin),
        check_workload(problem, origin),
        check_request_rate(problem, origin),
        check_quality(problem, origin),
        _check_acceptance(problem, origin),
        check_folders(problem, origin),
    )
    return [*of_names, *(error for check in checks for error in collected(check))]


def needs_running(problem: Problem) -> bool:
    """Whether the models must be run while planning, to measure a device or acceptance."""
    unmeasured = {*named_drafters(measured_here(problem))} - {*problem.stated_acceptance}
    return problem.device == "measured" or bool(problem.workload.prompts and unmeasured)


def _reserved() -> frozenset[str]:
    """Words that a draft cannot bear as its name: those below, and what sources are called."""
    drafters = (method.source_drafter for method in discover_methods().values())
    return RESERVED_NAMES | {drafter.name for drafter in drafters if drafter is not None}


def draft_name(folder: Path) -> str:
    """A name for the draft model in a folder: `new_head` of `models/new-head`."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")
    usable = re.match(DRAFT_NAME, name) and name not in _reserved()
    return name if usable else f"head_{name}".rstrip("_")


def _check_draft_names(problem: Problem, origin: Origin) -> Errors:
    seen: dict[str, int] = {}
    for index, draft in enumerate(problem.models.drafts):
        key = f"models.drafts.{index}.name"
        if draft.name in _reserved() or draft.name.startswith(MODULE_PREFIX):
            yield origin.usage(
                key,
                f'"{draft.name}" is a word of the plan language and cannot name a draft model',
                'Choose another name, such as "draft".',
            )
        if draft.name in seen:
            yield origin.usage(
                key,
                f'two draft models are called "{draft.name}"',
                f"Rename this one or models.drafts.{seen[draft.name]}.name.",
            )
        seen[draft.name] = index


def _check_words(
    key: str, words: Iterable[str], known: Iterable[str], what: str, origin: Origin
) -> Errors:
    """Refuse unknown and repeated words of a list."""
    known = set(known)
    seen: set[str] = set()
    for index, word in enumerate(words):
        if word not in known:
            yield origin.usage(f"{key}.{index}", f'unknown {what} "{word}"', nearest(word, known))
        if word in seen:
            yield origin.usage(
                f"{key}.{index}", f'the {what} "{word}" stands twice', "Keep one of the two."
            )
        seen.add(word)


def _check_methods_and_sources(problem: Problem, origin: Origin) -> Errors:
    methods = discover_methods()
    sources = {source for method in methods.values() for source in method.sources}
    of_sources = list(_check_words("sources", problem.sources, sources, "source", origin))
    yield from of_sources
    if problem.methods is None:
        return
    if not problem.methods:
        yield origin.usage(
            "methods",
            "the list of methods is empty",
            "Leave the key out to consider all methods, or name some.",
        )
    yield from _check_words("methods", problem.methods, methods, "method", origin)
    for index, name in enumerate(problem.methods):
        if name in methods and not of_sources:
            key = f"methods.{index}"
            yield from _check_method_can_draft(key, methods[name], problem, origin)


def _check_method_can_draft(
    key: str, method: Method[Any], problem: Problem, origin: Origin
) -> Errors:
    if method.needs_draft_model and not problem.models.drafts:
        yield origin.usage(
            key,
            f'"{method.name}" needs a draft model or drafter and models.drafts has none',
            "Add one to models.drafts, or take the method out.",
        )
    missing = [source for source in method.sources if source not in problem.sources]
    if missing:
        yield origin.usage(
            key,
            f'"{method.name}" needs the source "{missing[0]}", which sources leaves out',
            "Add it to sources, or take the method out.",
        )


def _check_acceptance(problem: Problem, origin: Origin) -> Errors:
    for name, stated in problem.acceptance.items():
        if isinstance(stated, Path) and not stated.is_file():
            yield origin.usage(
                f"acceptance.{name}",
                f"there is no acceptance profile {stated}",
                "Make one with `specplan profile acceptance`, leave the key out to have it "
                f"measured on workload.prompts, or assume a rate: acceptance: {{{name}: 0.75}}.",
            )


def _check_drafters(problem: Problem, origin: Origin) -> Errors:
    """Ready profiles are of models and sources that the problem names, or of what they make."""
    named = {drafter.name for drafter in named_drafters(problem)}
    for name in problem.acceptance:
        key = f"acceptance.{name}"
        try:
            drafter = read_drafter(name)
        except ValueError as error:
            with origin.key(key):
                drafter_of_old_name(name)
            what, _, remedy = str(error).partition("; ")
            yield origin.usage(key, what, f"{remedy[:1].upper()}{remedy[1:]}.")
            continue
        if isinstance(drafter, Model | Source) and name not in named:
            yield origin.usage(key, f'nothing that drafts is called "{name}"', nearest(name, named))
