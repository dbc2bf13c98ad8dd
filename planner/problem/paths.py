"""Paths as users write them: `~`, `$HOME`, and Hugging Face ids in the local cache."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel

from specplan.cost_models.devices.device import is_device_name
from specplan.planner.problem.models import Models
from specplan.planner.problem.schema import Problem

_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def expanded(path: Path | str) -> Path:
    """A path with `~` and environment variables replaced."""
    return Path(os.path.expandvars(path)).expanduser()


def is_model_id(path: Path | str) -> bool:
    """Whether this may be the id of a model, `owner/name`, as well as a relative path."""
    return _MODEL_ID.fullmatch(str(path)) is not None


def model_folder(path: Path, base: Path) -> Path:
    """The folder of a model: a path from `base`, or else the snapshot of an id in the cache."""
    folder = (base / expanded(path)).resolve()
    if folder.exists() or not is_model_id(path):
        return folder
    return cached_snapshot(str(path)) or folder


def cached_snapshot(model_id: str) -> Path | None:
    """The newest snapshot of a model in the local Hugging Face cache; nothing is downloaded.

    None where the cache does not have its config.json, or `huggingface_hub` is not installed.
    """
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    try:
        config = try_to_load_from_cache(model_id, "config.json")
    except ValueError:  # not an id that the hub would take
        return None
    return Path(config).parent if isinstance(config, str) else None


def cache_readable() -> bool:
    """Whether `huggingface_hub` is installed, which knows where its cache is."""
    return importlib.util.find_spec("huggingface_hub") is not None


def cached_models() -> tuple[str, ...]:
    """Ids of the models in the local Hugging Face cache; empty without `huggingface_hub`."""
    try:
        from huggingface_hub import CacheNotFound, scan_cache_dir
    except ImportError:
        return ()
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return ()
    return tuple(sorted(one.repo_id for one in repositories if one.repo_type == "model"))


def device_is_path(device: str) -> bool:
    """Whether a device is written as the path of a file rather than as a name."""
    is_file = device.endswith((".json", ".yaml", ".yml")) or "/" in device
    return is_file and not is_device_name(device)


def resolve_paths(problem: Problem, base: Path) -> Problem:
    """The same problem with every path absolute, relative ones taken from `base`."""

    def absolute(path: Path) -> Path:
        return (base / expanded(path)).resolve()

    return with_paths(problem, absolute, lambda path: model_folder(path, base))


def with_paths(
    problem: Problem, move: Callable[[Path], Path], move_model: Callable[[Path], Path]
) -> Problem:
    """The same problem with all of its paths rewritten.

    Args:
        problem: the problem.
        move: says what stands for a path.
        move_model: says it for the folders of models.
    """
    models = problem.models
    target = models.target.model_copy(update={"path": move_model(models.target.path)})
    drafts = tuple(d.model_copy(update={"path": move_model(d.path)}) for d in models.drafts)
    limits, quality = problem.limits, problem.limits.quality
    if quality is not None:
        quality = quality.model_copy(update=_moved(quality, ("prompts",), move))
        limits = limits.model_copy(update={"quality": quality})
    workload = _moved(problem.workload, ("trace", "prompts", "json_schema", "grammar"), move)
    device = problem.device
    return problem.model_copy(
        update={
            "models": Models(target=target, drafts=drafts),
            "workload": problem.workload.model_copy(update=workload),
            "limits": limits,
            "device": str(move(Path(device))) if device_is_path(device) else device,
            "acceptance": {
                name: move(stated) if isinstance(stated, Path) else stated
                for name, stated in problem.acceptance.items()
            },
            **_moved(problem, _OWN, move),
        }
    )


_OWN = ("datastore", "gates", "token_exits", "exit_classifier", "exit_policy", "profiles")


def _moved(
    part: BaseModel, keys: Sequence[str], move: Callable[[Path], Path]
) -> dict[str, Path | None]:
    """The paths of a part of a problem, rewritten where there are any."""
    paths = {key: getattr(part, key) for key in keys}
    return {key: None if path is None else move(path) for key, path in paths.items()}
