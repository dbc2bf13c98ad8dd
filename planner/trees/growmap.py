"""Growmaps: trees as Sequoia's engine reads them, in JSON or in torch's zip, without pickle.

Source of the format: `tree_search.py` of github.com/Infini-AI-Lab/Sequoia at 0ff3ff7, which saves
a dict of `roots` (per level, the ids of its nodes), `branches` (per level, their child counts),
`Successors` (per node, the ids of its children), `mask` (size x size, 1 where the column is the
row's ancestor or itself), `depth` (per node, the root's is 0) and `size`. Ids count the root, which
is 0, and run level by level.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.ir.files import read_text, write_atomic
from specplan.planner.trees.shape import StaticTree, tree_of_paths
from specplan.planner.trees.torch_program import torch_program

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Growmap:
    """A tree in the words of a growmap.

    Attributes:
        tree: its drafted nodes.
    """

    tree: StaticTree

    @property
    def size(self) -> int:
        """Nodes, the root counted."""
        return len(self.tree) + 1

    @cached_property
    def successors(self) -> list[list[int]]:
        """Per node, the ids of its children."""
        children: list[list[int]] = [[] for _ in range(self.size)]
        for node, parent in enumerate(self.tree.parents, start=1):
            children[parent + 1].append(node)
        return children

    @cached_property
    def depth(self) -> Integers:
        """Per node, the edges from the root."""
        return np.array([0, *self.tree.depths], dtype=np.int64)

    @cached_property
    def mask(self) -> Integers:
        """[node, node]: 1 where the column is an ancestor of the row, or the row itself."""
        mask = np.eye(self.size, dtype=np.int64)
        for node, parent in enumerate(self.tree.parents, start=1):
            mask[node] |= mask[parent + 1]
        return mask

    @property
    def parts(self) -> dict[str, Any]:
        """All parts under their names; `mask` and `depth` are arrays."""
        levels: list[list[int]] = [[] for _ in range(self.tree.depth + 1)]
        for node, depth in enumerate(self.depth.tolist()):
            levels[depth].append(node)
        return {
            "roots": levels,
            "branches": [[len(self.successors[node]) for node in level] for level in levels],
            "Successors": self.successors,
            "mask": self.mask,
            "depth": self.depth,
            "size": self.size,
        }


def read_growmap(path: Path | str) -> StaticTree:
    """Read the tree of a growmap, from torch's zip or from JSON.

    Raises:
        UsageError: when it is no growmap, or its parts contradict each other.
    """
    from specplan.cost_models.acceptance.importers import sequoia

    if Path(path).suffix != ".json":
        parents, ranks = sequoia.growmap_parents(path)
    else:
        try:
            parts = json.loads(read_text(path, "growmap"))
        except (ValueError, RecursionError):
            parts = None
        if not isinstance(parts, dict) or "Successors" not in parts:
            raise UsageError(
                "it is no growmap", where=str(path), remedy="Give a JSON object with `Successors`."
            )
        parents, ranks = sequoia.tree_of_growmap(parts | _mask(parts), str(path))
    # ids may run in any order that puts parents first
    return tree_of_paths(StaticTree(parents, ranks).paths)


def _mask(parts: dict[str, Any]) -> dict[str, Integers]:
    """The mask of a JSON growmap as an array; nothing where it has none."""
    if parts.get("mask") is None:
        return {}
    try:
        return {"mask": np.array(parts["mask"], dtype=np.int64)}
    except (ValueError, TypeError, OverflowError):
        return {"mask": np.zeros(0, dtype=np.int64)}


def write_growmap(path: Path | str, tree: StaticTree) -> None:
    """Write a growmap: torch's zip for names that end in .pt, JSON for .json.

    Raises:
        UsageError: for other names.
    """
    parts = Growmap(tree).parts
    suffix = Path(path).suffix
    if suffix == ".pt":
        write_atomic(path, _torch_zip(parts))
    elif suffix == ".json":
        written = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in parts.items()}
        write_atomic(path, json.dumps(written) + "\n")
    else:
        raise UsageError(
            "a growmap is a .pt or a .json file", where=str(path), remedy="Give such a name."
        )


def _torch_zip(parts: dict[str, Any]) -> bytes:
    """The zip that `torch.load` reads; the same bytes for the same tree."""
    program, storages = torch_program(parts)
    entries = {"data.pkl": program, "byteorder": b"little", "version": b"3\n"}
    entries |= {f"data/{number}": raw for number, raw in enumerate(storages)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in entries.items():
            archive.writestr(zipfile.ZipInfo(f"growmap/{name}"), raw)
    return buffer.getvalue()
