"""All models of a plan from their folders: target, draft models, heads and the target's modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specplan.cost_models.models.drafter_shapes import is_drafter_folder
from specplan.ir.plan import MODULE_PREFIX
from specplan.runtime.models.causal import load_model
from specplan.runtime.models.heads.loading import load_head, load_module


def load_all(
    folders: Mapping[str, tuple[Path, str]], roles: Iterable[str] = (), device: str = "cpu"
) -> dict[str, Any]:
    """Models by their role in plans.

    Args:
        folders: folder and number type by role, `target` among them; heads run in the target's.
        roles: that a plan runs; modules of the target, `module_0` and so on, are in its folder.
        device: a torch device.

    Raises:
        UsageError: a checkpoint cannot be read, or is one for another target.
        MissingCapabilityError: an architecture or a form of a head is not supported.
    """
    home, dtype = folders["target"]
    target = load_model(home, dtype=dtype, device=device)
    models: dict[str, Any] = {"target": target}
    for role, (folder, dtype) in folders.items():
        if role == "target":
            continue
        if is_drafter_folder(folder):
            models[role] = load_head(folder, target)
        else:
            models[role] = load_model(folder, dtype=dtype, device=device)
    for role in roles:
        if role not in models and role.startswith(MODULE_PREFIX):
            index = int(role.removeprefix(MODULE_PREFIX))
            models[role] = load_module(home, target, index)
    return models
