"""Grids of measured settings: rows of a file, groups of a target, drafter, task and batch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specplan.ir.errors import UsageError


class Setting(NamedTuple):
    """How SGLang drafts: levels, children kept per level, nodes verified with the root."""

    steps: int
    topk: int
    nodes: int

    @property
    def drafted(self) -> int:
        """Nodes verified, the root not counted."""
        return self.nodes - 1

    @property
    def is_chain(self) -> bool:
        """Whether no node has a sibling."""
        return self.topk == 1

    def __str__(self) -> str:
        return f"({self.steps},{self.topk},{self.nodes})"


GIVEN = Setting(3, 1, 4)
"""The one setting whose measurement is told."""


class Measured(NamedTuple):
    """One run: mean tokens per round, the bonus counted, and output tokens per second."""

    length: float
    speed: float


@dataclass(frozen=True)
class Group:
    """All settings of one case.

    Attributes:
        target: as the file names it.
        drafter: the normalised name.
        task: data set.
        batch: requests served side by side.
        baseline: tokens per second without speculation.
        runs: by setting.
    """

    target: str
    drafter: str
    task: str
    batch: int
    baseline: float
    runs: Mapping[Setting, Measured]

    @property
    def words(self) -> str:
        """For messages."""
        return f"{self.target}, {self.drafter}, {self.task}, batch {self.batch}"


def read_groups(path: Path) -> list[Group]:
    """Groups of a file in the form of `eagle3_h200_dev.json`, in its order.

    Raises:
        UsageError: no such file, not of that form, or a group without the given setting.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the grid ({error})", where=str(path)) from error
    runs_by_group: dict[tuple[str, str, str, int], dict[Setting, Measured]] = {}
    baselines: dict[tuple[str, str, str, int], float] = {}
    for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
        try:
            setting, key = _setting(row), _key(row)
            run = Measured(_positive(row, "accept_length"), _positive(row, "tokens_per_second"))
            baselines.setdefault(key, _positive(row, "baseline_tokens_per_second"))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"row {number} is no measured setting ({error!r})",
                where=str(path),
                remedy="See eagle3_h200_dev.json for the form.",
            ) from error
        runs_by_group.setdefault(key, {})[setting] = run
    groups = [Group(*key, baselines[key], runs) for key, runs in runs_by_group.items()]
    lacking = [group.words for group in groups if GIVEN not in group.runs]
    if lacking or not groups:
        what = f"{GIVEN} was not measured for {lacking[0]}" if lacking else "there are no rows"
        raise UsageError(
            what, where=str(path), remedy="Every group needs the setting that is told."
        )
    return groups


def plain_name(name: str) -> str:
    """A drafter's name without what rows spell differently: case, spaces, separators."""
    return re.sub(r"[^a-z0-9./]", "", name.lower())


def _key(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return (
        str(row["target"]).strip(),
        plain_name(str(row["drafter"])),
        str(row["task"]).strip(),
        int(row["batch"]),
    )


def _setting(row: Mapping[str, Any]) -> Setting:
    return Setting(int(row["steps"]), int(row["topk"]), int(row["num_draft_tokens"]))


def _positive(row: Mapping[str, Any], key: str) -> float:
    value = float(row[key])
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"{key} is {value!r}")
    return value
