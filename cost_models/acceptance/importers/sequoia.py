"""Sequoia's files: the acceptance vector; growmaps, which are trees and told apart.

Source: github.com/Infini-AI-Lab/Sequoia, tree_search.py and README: `acceptance-rate-vector.pt` is
[0, p_1, ..., p_W, reject], p_k = P(the k-th child is the accepted one | its parent was), the same
at every depth, no bonus (arXiv 2402.12374, section 3.1). A growmap is a dict with `Successors`
(child ids by node), `mask`, `depth` and `size`; its size counts the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from specplan.cost_models.acceptance.fits.counts import ASSUMED_ROUNDS
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.acceptance.torch_zip import describe, read_torch_zip
from specplan.cost_models.foreign_file import Source
from specplan.ir.errors import UsageError


def _recognises(source: Source) -> bool:
    return source.path.suffix in (".pt", ".pth") or source.data[:4] == b"PK\x03\x04"


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    saved = read_torch_zip(source.path)
    if isinstance(saved, Mapping) and "Successors" in saved:
        parents, _ = tree_of_growmap(saved, str(source.path))
        raise source.error(
            f"it is a growmap, a tree of {len(parents)} drafted tokens, and no acceptance",
            "Give acceptance-rate-vector.pt.",
        )
    if not isinstance(saved, np.ndarray) or saved.ndim != 1 or len(saved) < 3:
        raise source.error(
            f"it is {describe(saved)}, and no acceptance vector",
            "Give the vector [0, p_1, ..., p_W, reject] of Sequoia.",
        )
    vector = [source.checked(float(value), f"entry {i}", 0, 1) for i, value in enumerate(saved)]
    if vector[0] != 0.0 or abs(sum(vector) - 1.0) > 1e-3:
        raise source.error(
            f"its entries begin with {vector[0]:g} and sum to {sum(vector):g}, expected 0 and 1"
        )
    total = max(1.0, sum(vector[1:-1]))  # in float32 it may be a little more
    warm = request.key.temperature > 0
    return AcceptanceProfile.from_hazards(
        [[p / total for p in vector[1:-1]]],
        key=replace(request.key, how="draw_distinct" if warm else "best"),
        trials=request.rounds or ASSUMED_ROUNDS,
        provenance={
            "rounds": request.rounds or ASSUMED_ROUNDS,
            "rounds_assumed": request.rounds is None,
        },
    )


def growmap_parents(path: Path | str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tree of a growmap file, as `parents` and `ranks` of its drafted nodes.

    Raises:
        UsageError: it is no growmap.
    """
    saved = read_torch_zip(path)
    if not isinstance(saved, Mapping) or "Successors" not in saved:
        raise UsageError(
            f"it is {describe(saved)}, and no growmap", where=str(path), remedy="Give a growmap."
        )
    return tree_of_growmap(saved, str(path))


def tree_of_growmap(
    growmap: Mapping[str, object], where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same of its content: the root, node 0, is left out, and ids move down by one.

    Raises:
        UsageError: ids are not in breadth-first order, or the parts contradict each other.
    """
    successors = growmap["Successors"]
    parents: dict[int, int] = {}
    ranks: dict[int, int] = {}
    for node, children in enumerate(successors if isinstance(successors, list) else []):
        for rank, child in enumerate(children if isinstance(children, list) else [-1]):
            name = child if isinstance(child, int) else -1  # -1 fits no tree
            parents[name], ranks[name] = node, rank
    size = len(parents) + 1
    fits = (
        growmap.get("size", size) == size
        and sorted(parents) == list(range(1, size))
        and all(parent < child for child, parent in parents.items())
        and _mask_fits(growmap.get("mask"), parents)
    )
    if not fits:
        raise UsageError(
            "the growmap contradicts itself", where=where, remedy="Take it again from Sequoia."
        )
    nodes = range(1, size)
    return tuple(parents[node] - 1 for node in nodes), tuple(ranks[node] for node in nodes)


def _mask_fits(mask: object, parents: Mapping[int, int]) -> bool:
    """Whether the mask, if there is one, marks each node's ancestors and itself."""
    if not isinstance(mask, np.ndarray):
        return mask is None
    size = len(parents) + 1
    expected = np.eye(size, dtype=np.int64)
    for child in range(1, size):
        expected[child] |= expected[parents[child]]
    return mask.shape == expected.shape and bool((mask == expected).all())


IMPORTER = Importer(
    "sequoia", "acceptance-rate-vector.pt of Sequoia, read without pickle", _recognises, _read
)
