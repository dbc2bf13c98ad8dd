"""Checkpoints of a training: a drafter in its public format, with what goes on from there.

A folder is written whole and then takes the place of the one before, so that whatever ends a
training leaves the last checkpoint as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import read_json, staged, write_json_atomic
from specplan.training.learning.adam import Adam
from specplan.training.learning.learner import Learner

STATE, OPTIMIZER, OPPONENT = "training.json", "optimizer.state", "adversary.state"


def write_checkpoint(
    folder: Path, learner: Learner, optimizer: Adam, state: Mapping[str, Any]
) -> None:
    """Write a drafter, its optimizer and the state of its training.

    Raises:
        SpecplanError: the disk is full or cannot be written; the folder is as it was.
    """
    try:
        with staged(folder) as place:
            learner.write(place)
            (place / OPTIMIZER).write_bytes(save(optimizer.state()))
            write_json_atomic(place / STATE, {"schema_version": 1, **state})
    except (OSError, SafetensorError) as error:
        last = f"the last checkpoint, {folder}, is whole" if folder.exists() else "there is none"
        raise SpecplanError(
            f"the checkpoint of step {state['step']} cannot be written ({error}); {last}",
            where=str(folder),
            remedy="Make room, and run the same command again: it goes on from there.",
        ) from error


def read_state(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state of a training that a folder holds; None without one.

    Args:
        folder: that is trained into.
        wanted: what must not have changed since: digests of the target and the texts, settings.

    Raises:
        UsageError: the folder holds something else, or something has changed; names it.
    """
    if not (folder / STATE).is_file():
        files = {path.name for path in folder.iterdir()} if folder.exists() else set()
        if files - {"config.json"}:
            raise UsageError(
                "the folder holds no training", where=str(folder), remedy="Name another folder."
            )
        return None
    state: dict[str, Any] = read_json(folder / STATE, "state of a training")
    changed = [name for name, value in wanted.items() if state.get(name) != value]
    if changed:
        raise UsageError(
            f"the training in this folder differs in its {changed[0].replace('_', ' ')}",
            where=str(folder),
            remedy="Name another folder, or give the settings with which it was started.",
        )
    return state


def read_optimizer(folder: Path, optimizer: Adam) -> None:
    """Let an optimizer go on from the checkpoint of a folder."""
    optimizer.resume(load((folder / OPTIMIZER).read_bytes()))
