"""Checks of what plans run on, in which formats, and where tables lie."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from specplan.cost_models.devices.device import device_count, device_remedy, is_device_name
from specplan.cost_models.models.drafter_shapes import is_drafter_folder
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.ir.capabilities import INTERPRETER
from specplan.planner.problem.errors import Errors, Origin, nearest
from specplan.planner.problem.limits import COMMAND, DIVERGENCE, KL, TEXT_LOSS
from specplan.planner.problem.models import Formats, formats_words
from specplan.planner.problem.paths import device_is_path
from specplan.planner.problem.schema import NO_BACKEND, Problem
from specplan.planner.problem.workload import read_prompts

DATASTORE = "datastore"
DATASTORE_FILE = "datastore.json"
"""Comes last: without it there is no datastore."""


@cache
def known_backends() -> tuple[str, ...]:
    """Names of the compile targets, found by what they state and without importing one."""
    stated = [
        path for top in _folders_of_backends() for path in Path(top).glob("*/capabilities.py")
    ]
    return tuple(sorted(path.parent.name for path in stated))


@cache
def known_engines() -> tuple[str, ...]:
    """Names of the engines that plans are projected onto, found by their tables."""
    tables = [path for top in _folders_of_backends() for path in Path(top).glob("engines/*.yaml")]
    return tuple(sorted(path.stem for path in tables))


def _folders_of_backends() -> list[str]:
    spec = importlib.util.find_spec("specplan.backends")
    return list((spec.submodule_search_locations if spec else None) or [])


def check_backends(problem: Problem, origin: Origin, *, runs_models: bool) -> Errors:
    """Backends that do not exist, or cannot do what the problem leaves to be measured.

    Args:
        problem: a problem.
        origin: where it was written, for messages.
        runs_models: whether models are run while planning.

    Yields:
        UsageError: naming the dotted key.
    """
    if problem.backends and problem.backend != Problem.model_fields["backend"].default:
        yield origin.usage(
            "backends",
            "backend and backends are both given",
            "Keep one of the two; the first of several backends is taken where others are no gain.",
        )
    for place, name in enumerate(problem.all_backends):
        key = f"backends.{place}" if problem.backends else "backend"
        if name in problem.backends[:place]:
            yield origin.usage(key, f'"{name}" is named twice', "Name each backend once.")
        if name == NO_BACKEND and problem.backends:
            yield origin.usage(
                key,
                f'"{NO_BACKEND}" refuses no plan, and cannot be chosen among others',
                f"Leave it out, or write backend: {NO_BACKEND}.",
            )
        yield from _check(name, key, origin, runs_models)


def check_formats(problem: Problem, origin: Origin) -> Errors:
    """Formats of models that are not there, or that run elsewhere, or whose loss is not limited."""
    roles, several = problem.models.by_role, len(problem.formats) > 1
    for place, formats in enumerate(problem.formats):
        key = f"formats.{place}"
        if formats in problem.formats[:place]:
            yield origin.usage(key, f"{formats_words(formats)} is named twice", "Name each once.")
        for role in formats if isinstance(formats, dict) else ():
            if role not in roles:
                yield origin.usage(
                    f"{key}.{role}", f"the problem has no model {role}", nearest(role, roles)
                )
    elsewhere = [name for name in problem.all_backends if name not in known_backends()]
    if problem.formats and elsewhere:
        yield origin.usage(
            "formats",
            f"models run in them here, and not by {elsewhere[0]}",
            "Name a backend that runs here, or give the models' weight_format.",
        )
    quality = problem.limits.quality
    if several and quality is not None:
        if quality.measure != TEXT_LOSS:
            yield origin.usage(
                "limits.quality.measure",
                f"what number formats lose is measured on held-out text, not as {quality.measure}",
                f"Write {TEXT_LOSS}, or keep one of the formats.",
            )
        elif (quality.prompts or problem.workload.prompts) is None:
            yield origin.usage(
                "limits.quality.prompts",
                "what number formats lose is measured on prompts, and there are none",
                "Name a JSON Lines file with one text per line.",
            )


def check_quality(problem: Problem, origin: Origin) -> Errors:
    """A quality limit whose command, prompts or size do not go with its measure."""
    quality = problem.limits.quality
    if quality is None:
        return
    at = "limits.quality"
    share = quality.measure != TEXT_LOSS and quality.divergence != KL
    if share and quality.at_most >= 1.0:
        yield origin.usage(
            f"{at}.at_most",
            f"{quality.measure} is never above 1, so that {quality.at_most:g} limits nothing",
            "Write 0.05 for 5 %.",
        )
    if (quality.measure == COMMAND) != bool(quality.command):
        needs = quality.measure == COMMAND
        yield origin.usage(
            f"{at}.command",
            "there is no command to score outputs" if needs else "no measure runs the command",
            "Give program and arguments as a list."
            if needs
            else f'Leave it out, or write measure: "{COMMAND}".',
        )
    if quality.divergence == KL and quality.measure != DIVERGENCE:
        yield origin.usage(
            f"{at}.divergence",
            f"{quality.measure} is no divergence",
            'Leave it out, or write measure: "divergence".',
        )
    if quality.prompts is None and problem.workload.prompts is None:
        yield origin.usage(
            f"{at}.prompts",
            "there are no prompts to measure what plans lose on",
            "Name a JSON Lines file with one text per line, here or as workload.prompts.",
        )
    elif quality.prompts is not None:
        with origin.key(f"{at}.prompts"):
            read_prompts(quality.prompts)


def check_placement(problem: Problem, origin: Origin) -> Errors:
    """Layers outside of memory where nothing reads them in every pass."""
    drafts = {draft.name: f"drafts.{place}" for place, draft in enumerate(problem.models.drafts)}
    formats = {form for one in problem.formats for form in _dtypes(one)}
    others = [name for name in problem.all_backends if name not in (INTERPRETER, NO_BACKEND)]
    for role, model in problem.models.by_role.items():
        if model.placement is None:
            continue
        key = f"models.{drafts.get(role, role)}.placement"
        if others:
            yield origin.usage(
                key,
                f"layers are read in every pass by {INTERPRETER}, and not by {others[0]}",
                f"Name {INTERPRETER} or {NO_BACKEND} as the backend, or leave placement out.",
            )
        if {model.dtype, *formats} & {*RUN_FORMATS}:
            yield origin.usage(
                key,
                f"layers that are read in every pass are not rounded to {' or '.join(RUN_FORMATS)}",
                "Give another dtype, or leave placement out.",
            )
        if is_drafter_folder(model.path):
            yield origin.usage(
                key, "a head lies in memory", "Place layers of the target or of a draft model."
            )


def check_sharing(problem: Problem, origin: Origin) -> Errors:
    """Draft models that a part of the devices share, where that cannot be."""
    devices = device_count(problem.device)
    for place, draft in enumerate(problem.models.drafts):
        key, stated = f"models.drafts.{place}.tensor_parallel", draft.tensor_parallel
        if stated is None:
            continue
        if devices % stated:
            yield origin.usage(
                key,
                f"{stated} does not divide the {devices} devices",
                "Give a divisor of them, or leave it out.",
            )
        if is_drafter_folder(draft.path):
            yield origin.usage(
                key,
                "a head runs on all of the target's devices, whose states and LM head it reads",
                "Leave it out.",
            )
        if draft.placement is not None and stated < devices:
            yield origin.usage(
                key, "layers outside of memory are read by all devices", "Leave one of the two out."
            )


def _dtypes(formats: Formats) -> Iterable[str]:
    every = formats.values() if isinstance(formats, dict) else (formats,)
    stated = (one if isinstance(one, str) else one.dtype for one in every)
    return filter(None, stated)


def _check(backend: str, key: str, origin: Origin, runs_models: bool) -> Errors:
    runs_here, engine = backend in known_backends(), backend.partition("@")[0]
    if not runs_here and backend != NO_BACKEND and engine not in known_engines():
        yield origin.usage(
            key,
            f'unknown backend "{backend}"',
            nearest(backend, (*known_backends(), *known_engines(), NO_BACKEND)),
        )
    if not runs_here and runs_models:
        yield origin.usage(
            key,
            "measuring the device or acceptance runs models, and there is no backend to run them",
            "Name a device and give ready acceptance profiles, or name a backend that runs here: "
            f"{', '.join(known_backends())}.",
        )


def check_device(problem: Problem, origin: Origin) -> Errors:
    """A device that is not known, or whose file is missing."""
    device = problem.device
    if device_is_path(device):
        if not Path(device).is_file():
            yield origin.usage(
                "device",
                f"there is no device file {device}",
                'Make one with `specplan profile device`, or write "measured" or a name from '
                "`specplan devices`.",
            )
    elif device != "measured" and not is_device_name(device):
        measured = difflib.get_close_matches(device, ["measured"])
        remedy = f'Did you mean "{measured[0]}"?' if measured else device_remedy(device)
        yield origin.usage("device", f'unknown device "{device}"', remedy)


def check_pool(problem: Problem, origin: Origin) -> Errors:
    """Devices that read prompts elsewhere, where prompts are read here or no load is given."""
    pool = problem.serving.pool
    if pool is None:
        return
    if problem.serving.prefill not in (None, "elsewhere"):
        yield origin.usage(
            "serving.pool",
            f"prompts are read by the device itself (prefill: {problem.serving.prefill})",
            "Write prefill: elsewhere, or leave one of the two out.",
        )
    if problem.objective != "goodput":
        yield origin.usage(
            "serving.pool",
            f'it has no effect on the objective "{problem.objective}"',
            'Leave it out, or write "objective: goodput" and workload.request_rate.',
        )
    if not is_device_name(pool.device):
        yield origin.usage(
            "serving.pool.device",
            f'unknown device "{pool.device}"',
            device_remedy(pool.device),
        )


def check_folders(problem: Problem, origin: Origin) -> Errors:
    """What is wrong with folders and files: tables in a file, a datastore or gates missing.

    Yields:
        UsageError: naming the key.
    """
    if problem.profiles.exists() and not problem.profiles.is_dir():
        yield origin.usage(
            "profiles",
            f"{problem.profiles} is a file",
            "Name a folder for measured tables; it is made when it is missing.",
        )
    measured = {"gates": problem.gates, "token_exits": problem.token_exits}
    for key, path in measured.items():
        if path is not None and not path.is_file():
            make = f"Measure one with `specplan profile {key.replace('_', '-')}`"
            yield origin.usage(key, f"there is no file {path}", f"{make}.")
    trained = {"exit_classifier": problem.exit_classifier, "exit_policy": problem.exit_policy}
    for key, path in trained.items():
        if path is not None and not (path / "config.json").is_file():
            make = f"Train them with `specplan train --exits {key.removeprefix('exit_')}`"
            yield origin.usage(key, f"there are no trained exits in {path}", f"{make}.")
    make = "Make one with `specplan datastore build`"
    if DATASTORE in problem.sources and problem.datastore is None:
        yield origin.usage(
            DATASTORE, f'the source "{DATASTORE}" needs a folder', f"{make} and name it here."
        )
    if problem.datastore is not None and not (problem.datastore / DATASTORE_FILE).is_file():
        yield origin.usage(
            DATASTORE, f"there is no finished datastore in {problem.datastore}", f"{make}."
        )
