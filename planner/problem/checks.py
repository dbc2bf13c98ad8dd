"""What a well-formed problem may still get wrong: names, combinations, files and limits.

Every function raises on the first thing that is wrong; the order goes from the words of the
problem file to the files that it names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.drafters import Model, Source, read_drafter
from specplan.cost_models.acceptance.old_profiles import drafter_of_old_name
from specplan.cost_models.devices.device import is_device_name, list_devices
from specplan.ir.ops import OPS
from specplan.ir.plan import MODULE_PREFIX
from specplan.planner.drafters.candidates import measured_here, named_drafters
from specplan.planner.method import Method, discover_methods
from specplan.planner.problem.backend_checks import check_backends
from specplan.planner.problem.errors import Origin, nearest
from specplan.planner.problem.folder_checks import check_folders
from specplan.planner.problem.model_checks import check_models
from specplan.planner.problem.paths import device_is_path
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.workload_files import read_prompts, read_trace

MINIMUM_PROMPTS = 4
"""Fewer prompts than this give acceptance rates without a usable interval."""

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
        UsageError: naming the dotted key.
        InfeasibleError: when a limit is below what any plan needs.
    """
    _check_draft_names(problem, origin)
    _check_drafters(problem, origin)
    _check_methods_and_sources(problem, origin)
    _check_device(problem, origin)
    check_backends(problem, origin, runs_models=needs_running(problem))
    _check_workload(problem, origin)
    _check_request_rate(problem, origin)
    _check_acceptance(problem, origin)
    check_folders(problem, origin)
    check_models(problem, origin, weights_needed=needs_running(problem))
    _check_prompts(problem, origin)


def needs_running(problem: Problem) -> bool:
    """Whether the models must be run while planning, to measure a device or acceptance."""
    unmeasured = {*named_drafters(measured_here(problem))} - {*problem.stated_acceptance}
    return problem.device == "measured" or bool(problem.workload.prompts and unmeasured)


def _reserved() -> frozenset[str]:
    """Words that a draft cannot bear as its name: those below, and what sources are called."""
    drafters = (method.source_drafter for method in discover_methods().values())
    return RESERVED_NAMES | {drafter.name for drafter in drafters if drafter is not None}


def _check_draft_names(problem: Problem, origin: Origin) -> None:
    seen: dict[str, int] = {}
    for index, draft in enumerate(problem.models.drafts):
        key = f"models.drafts.{index}.name"
        if draft.name in _reserved() or draft.name.startswith(MODULE_PREFIX):
            raise origin.usage(
                key,
                f'"{draft.name}" is a word of the plan language and cannot name a draft model',
                'Choose another name, such as "draft".',
            )
        if draft.name in seen:
            raise origin.usage(
                key,
                f'two draft models are called "{draft.name}"',
                f"Rename this one or models.drafts.{seen[draft.name]}.name.",
            )
        seen[draft.name] = index


def _check_words(
    key: str, words: Iterable[str], known: Iterable[str], what: str, origin: Origin
) -> None:
    """Refuse unknown and repeated words of a list."""
    known = set(known)
    seen: set[str] = set()
    for index, word in enumerate(words):
        if word not in known:
            raise origin.usage(f"{key}.{index}", f'unknown {what} "{word}"', nearest(word, known))
        if word in seen:
            raise origin.usage(
                f"{key}.{index}", f'the {what} "{word}" stands twice', "Keep one of the two."
            )
        seen.add(word)


def _check_methods_and_sources(problem: Problem, origin: Origin) -> None:
    methods = discover_methods()
    sources = {source for method in methods.values() for source in method.sources}
    _check_words("sources", problem.sources, sources, "source", origin)
    if problem.methods is None:
        return
    if not problem.methods:
        raise origin.usage(
            "methods",
            "the list of methods is empty",
            "Leave the key out to consider all methods, or name some.",
        )
    _check_words("methods", problem.methods, methods, "method", origin)
    for index, name in enumerate(problem.methods):
        _check_method_can_draft(f"methods.{index}", methods[name], problem, origin)


def _check_method_can_draft(
    key: str, method: Method[Any], problem: Problem, origin: Origin
) -> None:
    if method.needs_draft_model and not problem.models.drafts:
        raise origin.usage(
            key,
            f'"{method.name}" needs a draft model or drafter and models.drafts has none',
            "Add one to models.drafts, or take the method out.",
        )
    missing = [source for source in method.sources if source not in problem.sources]
    if missing:
        raise origin.usage(
            key,
            f'"{method.name}" needs the source "{missing[0]}", which sources leaves out',
            "Add it to sources, or take the method out.",
        )


def _check_device(problem: Problem, origin: Origin) -> None:
    device = problem.device
    if device_is_path(device):
        if not Path(device).is_file():
            raise origin.usage(
                "device",
                f"there is no device file {device}",
                'Make one with `specplan profile device`, or write "measured" or a name from '
                "`specplan devices`.",
            )
    elif device != "measured" and not is_device_name(device):
        raise origin.usage(
            "device", f'unknown device "{device}"', nearest(device, ["measured", *list_devices()])
        )


def _check_workload(problem: Problem, origin: Origin) -> None:
    workload = problem.workload
    if workload.prompt_lengths is not None and workload.prompt_tokens is not None:
        raise origin.usage(
            "workload.prompt_lengths",
            "prompt_tokens and prompt_lengths are both given",
            "Keep one of the two.",
        )
    prompt = "prompt_tokens" if workload.prompt_lengths is None else "prompt_lengths"
    lengths = {prompt: workload.lengths or None, "output_tokens": workload.output_tokens}
    for name, value in lengths.items():
        if workload.trace is not None and value is not None:
            raise origin.usage(
                f"workload.{name}",
                f"{name} and trace are both given",
                "Keep the trace, or prompt_tokens and output_tokens.",
            )
        if workload.trace is None and value is None:
            raise origin.usage(
                f"workload.{name}",
                "the lengths of the requests are not known",
                f"Give {name} in tokens, or a trace file instead of both lengths.",
            )
    for key, what, numbers in (
        ("batch_sizes", "batch size", workload.batch_sizes),
        ("prompt_lengths", "prompt length", workload.prompt_lengths or ()),
    ):
        for index, number in enumerate(numbers):
            if number in numbers[:index]:
                raise origin.usage(
                    f"workload.{key}.{index}",
                    f"the {what} {number} stands twice",
                    "Keep one of the two.",
                )
    for name, narrowing, off in (("top_k", workload.top_k, 0), ("top_p", workload.top_p, 1.0)):
        if workload.greedy and narrowing != off:
            raise origin.usage(
                f"workload.{name}",
                f"{name} = {narrowing} has no effect at temperature 0, which is greedy decoding",
                f"Leave {name} out, or give a temperature above 0.",
            )
    if workload.trace is not None:
        with origin.key("workload.trace"):
            read_trace(workload.trace)


def _check_request_rate(problem: Problem, origin: Origin) -> None:
    given = problem.workload.request_rate is not None
    if problem.objective == "goodput" and not given:
        raise origin.usage(
            "workload.request_rate",
            "goodput is asked for, and how many requests arrive is not known",
            "Give request_rate in requests per second, or another objective.",
        )
    if problem.objective != "goodput" and given:
        raise origin.usage(
            "workload.request_rate",
            f'request_rate has no effect on the objective "{problem.objective}"',
            'Leave request_rate out, or write "objective: goodput".',
        )


def _check_acceptance(problem: Problem, origin: Origin) -> None:
    for name, stated in problem.acceptance.items():
        if isinstance(stated, Path) and not stated.is_file():
            raise origin.usage(
                f"acceptance.{name}",
                f"there is no acceptance profile {stated}",
                "Make one with `specplan profile acceptance`, leave the key out to have it "
                f"measured on workload.prompts, or assume a rate: acceptance: {{{name}: 0.75}}.",
            )


def _check_drafters(problem: Problem, origin: Origin) -> None:
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
            raise origin.usage(key, what, f"{remedy[:1].upper()}{remedy[1:]}.") from error
        if isinstance(drafter, Model | Source) and name not in named:
            raise origin.usage(key, f'nothing that drafts is called "{name}"', nearest(name, named))


def _check_prompts(problem: Problem, origin: Origin) -> None:
    workload = problem.workload
    if workload.prompts is None:
        return
    with origin.key("workload.prompts"):
        prompts = read_prompts(workload.prompts)
    if workload.task:
        tasks = {prompt.task for prompt in prompts}
        if workload.task not in tasks:
            raise origin.usage(
                "workload.task",
                f'no prompt of {workload.prompts} has the task "{workload.task}"',
                nearest(workload.task, tasks - {""}),
            )
        prompts = [prompt for prompt in prompts if prompt.task == workload.task]
    if len(prompts) < MINIMUM_PROMPTS:
        of_task = f' of the task "{workload.task}"' if workload.task else ""
        raise origin.usage(
            "workload.prompts",
            f"the file has {len(prompts)} prompts{of_task}, at least {MINIMUM_PROMPTS} are needed",
            "Add prompts; 40 or more give a useful interval of the acceptance.",
        )
