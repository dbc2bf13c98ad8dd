"""Problems as the front door takes and stores them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from specplan.ir.errors import UsageError
from specplan.planner.problem.loading import load_problem, problem_from_dict
from specplan.planner.problem.models import DraftModel, Formats, TargetModel
from specplan.planner.problem.paths import device_is_path, with_paths
from specplan.planner.problem.schema import NO_BACKEND, Problem

if TYPE_CHECKING:
    from specplan.backends.engines.table import Table
    from specplan.ir.capabilities import CapabilityChecker

ModelT = TypeVar("ModelT", bound=TargetModel)
ProblemLike: TypeAlias = "Problem | Path | str | Mapping[str, Any]"
"""A checked problem, the path of a problem file, or the same content as a mapping."""


def as_problem(problem: ProblemLike) -> Problem:
    """A checked problem with absolute paths; relative ones in a mapping start at the folder here.

    Raises:
        UsageError: names the dotted key that is wrong.
        InfeasibleError: a limit cannot be met by any plan.
    """
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Mapping):
        return problem_from_dict(problem)
    return load_problem(problem)


def portable(problem: Problem, folder: Path) -> dict[str, Any]:
    """The problem as JSON data with paths relative to `folder`, so that both can move together.

    `problem_from_dict(portable(problem, folder), folder)` is the problem again.
    """

    def relative(path: Path) -> Path:
        return Path(os.path.relpath(path, folder))

    data = with_paths(problem, relative, relative).model_dump(mode="json")
    if device_is_path(problem.device):
        data["device"] = f"./{data['device']}"  # beside the folder it is still a path
    return data


def capabilities_of(problem: Problem) -> CapabilityChecker | None:
    """What the backend or engine that is to run the plan can run; None for planning only.

    Raises:
        UsageError: what the engine's version understands is not known.
    """
    if problem.backend == NO_BACKEND:
        return None
    from specplan.backends.engines.registry import is_engine
    from specplan.backends.registry import backend_capabilities

    if is_engine(problem.backend):
        return table_for(problem, problem.backend)
    return replace(backend_capabilities(problem.backend), from_checkpoints=True)


def table_for(problem: Problem, engine: str, *, any_version: bool = False) -> Table:
    """What an engine can express of a problem's models.

    Raises:
        UsageError: no engine has that name, nothing was verified for that version, or it does not
            run on the problem's device, serve its number type or place layers outside of memory.
    """
    from specplan.backends.engines.checkpoints import form_of, read_config
    from specplan.backends.engines.registry import open_table
    from specplan.cost_models.devices.device import device_count, one_device

    table = open_table(engine, any_version=any_version)
    device = one_device(problem.device).partition("@")[0]
    measured = problem.device == "measured" or device_is_path(problem.device)
    if not measured and not table.may_run_on(device):
        begins = f"begins with {' or '.join(table.runs_on)}" if table.runs_on else "it runs on"
        raise UsageError(
            f"{table.title} does not run on {device}",
            where="device",
            remedy=f"Name a device that {begins}, a profile of yours, or another engine.",
        )
    check_formats(table, problem)
    if any(model.placement for model in problem.models.by_role.values()):
        raise UsageError(
            f"what is written for {table.title} leaves all layers in memory",
            where="models.target.placement",
            remedy="Leave placement out, or run the plan here.",
        )
    forms = {draft.name: form_of(read_config(draft.path)) for draft in problem.models.drafts}
    known = {name: form for name, form in forms.items() if form}
    copied = copied_drafters(problem) if table.shares else frozenset()
    return replace(table, forms=known, copied=copied, named=device_count(problem.device))


def check_formats(table: Table, problem: Problem) -> None:
    """Refuse number formats of models that no setting of an engine brings about.

    Raises:
        UsageError: the target's number type, or the format of a KV cache.
    """
    dtype = problem.models.target.dtype
    if dtype not in table.dtypes:
        raise UsageError(
            f"{table.title} does not serve a model in {dtype}",
            where="models.target.dtype",
            remedy=f"It takes {', '.join(table.dtypes)}; weights in fewer bits are planned by "
            "models.target.weight_format.",
        )
    for role, model in problem.models.by_role.items():
        if model.other_cache is not None and model.other_cache not in table.caches:
            known = ", ".join(table.caches)
            raise UsageError(
                f"no setting of {table.title} is known here for a KV cache in {model.other_cache}",
                where=f"kv_format of {role}",
                remedy=f"It takes {known}; or leave it out." if known else "Leave it out.",
            )


def on_used_devices(problem: Problem, runner: CapabilityChecker | None) -> Problem:
    """The problem on the devices that what runs its plans uses: one where it shares no layers."""
    from specplan.cost_models.devices.device import device_count, one_device

    if runner is None or runner.shares or device_count(problem.device) == 1:
        return problem
    return problem.model_copy(update={"device": one_device(problem.device)})


def copied_drafters(problem: Problem) -> frozenset[str]:
    """Drafters that not all devices share: as the problem has it, or by their heads."""
    from specplan.backends.engines.checkpoints import can_share, read_config
    from specplan.cost_models.devices.device import device_count

    devices = device_count(problem.device)
    return frozenset(
        draft.name
        for draft in problem.models.drafts
        if draft.tensor_parallel not in (None, devices)
        or not can_share(read_config(draft.path), devices)
    )


def with_shared_drafters(problem: Problem) -> Problem:
    """The problem with every draft model on all of its devices, where that can be."""
    from specplan.backends.engines.checkpoints import can_share, read_config
    from specplan.cost_models.devices.device import device_count
    from specplan.cost_models.models.drafter_shapes import is_drafter_folder

    devices = device_count(problem.device)

    def sharing(draft: DraftModel) -> int | None:
        head = is_drafter_folder(draft.path)
        return None if head or not can_share(read_config(draft.path), devices) else devices

    drafts = tuple(
        one.model_copy(update={"tensor_parallel": sharing(one)}) for one in problem.models.drafts
    )
    models = problem.models.model_copy(update={"drafts": drafts})
    return problem.model_copy(update={"models": models})


def each_variant(problem: Problem) -> tuple[Problem, ...]:
    """The problem in all formats, and for each backend, that it may choose among, in its order."""
    in_formats = [in_format(problem, one) for one in problem.formats] or [problem]
    return tuple(
        one.model_copy(update={"backend": name, "backends": ()})
        for name in problem.all_backends
        for one in in_formats
    )


def in_format(problem: Problem, formats: Formats) -> Problem:
    """The problem with these number formats alone; heads take over those of matrices and caches."""
    from specplan.cost_models.models.drafter_shapes import is_drafter_folder
    from specplan.cost_models.models.number_formats import RUN_FORMATS

    def chosen(role: str, model: ModelT) -> ModelT:
        own = formats.get(role) if isinstance(formats, dict) else formats
        if own is None:
            return model
        dtype, cache = (own, None) if isinstance(own, str) else (own.dtype, own.kv_format)
        joined = not isinstance(formats, dict) and dtype not in RUN_FORMATS
        if dtype is None or (joined and is_drafter_folder(model.path)):
            dtype = model.dtype
        return model.model_copy(update={"dtype": dtype, "kv_format": cache or model.kv_format})

    models = problem.models
    drafts = tuple(chosen(draft.name, draft) for draft in models.drafts)
    update = {"target": chosen("target", models.target), "drafts": drafts}
    return problem.model_copy(
        update={"models": models.model_copy(update=update), "formats": (formats,)}
    )


def compilers_of(problem: Problem) -> tuple[str, ...]:
    """Those of the problem's backends that compile rounds."""
    from specplan.backends.registry import round_backends

    return tuple(name for name in problem.all_backends if name in round_backends())


def check_runs(problem: Problem) -> None:
    """Refuse to write a bundle of a plan that is not run here.

    Raises:
        UsageError: the problem names no backend, an engine, models that cannot be run as they are
            described, or a prefix cache.
    """
    from specplan.backends.engines.registry import is_engine

    if any(name == NO_BACKEND or is_engine(name) for name in problem.all_backends):
        raise UsageError(
            "a bundle holds a plan that runs, and this problem is only planned for",
            where="backends" if problem.backends else "backend",
            remedy="Name a backend, or write no bundle and take the printed plan; `specplan emit` "
            "writes the files of an engine.",
        )
    if problem.workload.cached_prefix:
        raise UsageError(
            "a bundle holds a plan that runs, and the backends here have no prefix cache: they "
            "compute every prompt from its first token",
            where="workload.cached_prefix",
            remedy="Leave it out, or plan for an engine and write its files by `specplan emit`.",
        )
    for role, model in problem.models.by_role.items():
        if model.plans_only:
            raise UsageError(
                f"a bundle holds a plan that runs, and {role} is only planned for: other number "
                "formats than are stored, or layers in host memory",
                where="models",
                remedy="Name a checkpoint folder, leave weight_format out, and kv_format or write "
                "float16, bfloat16 or fp8, and place layers on a disk only.",
            )


def check_tunes(problem: Problem) -> None:
    """Refuse to tune what is not run here, in several formats, or on several compilers of rounds.

    Raises:
        UsageError: the problem names these.
    """
    from specplan.backends.engines.registry import is_engine
    from specplan.planner.problem.setting_checks import known_backends

    elsewhere = [name for name in problem.all_backends if name not in known_backends()]
    if elsewhere:
        engine = elsewhere[0] if is_engine(elsewhere[0]) else "NAME"
        raise UsageError(
            f'tuning runs plans on this machine, and "{elsewhere[0]}" runs none here',
            where="backends" if problem.backends else "backend",
            remedy=f"Add --engine {engine} to tune on a serving engine, or set a backend that runs "
            f"here: {', '.join(known_backends())}.",
        )
    if len(problem.formats) > 1:
        raise UsageError(
            "plans are tuned in one number format, and the problem names several",
            where="formats",
            remedy="Keep one; `specplan optimize` chooses among them.",
        )
    if compilers_of(problem) and len(problem.all_backends) > 1:
        raise UsageError(
            "plans are tuned on one backend, and the problem names several",
            where="backends",
            remedy="Keep one; `specplan optimize` chooses among them.",
        )
