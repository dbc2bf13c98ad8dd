"""Sequoia's acceptance vector; its growmaps, which are trees, are refused.

Source: github.com/Infini-AI-Lab/Sequoia, tree_search.py and README: `acceptance-rate-vector.pt` is
[0, p_1, ..., p_W, reject], p_k = P(the k-th child is the accepted one | its parent was), the same
at every depth, no bonus (arXiv 2402.12374, section 3.1). A growmap is a dict with `Successors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from specplan.cost_models.acceptance.fits.counts import ASSUMED_ROUNDS
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.acceptance.torch_zip import describe, read_torch_zip
from specplan.cost_models.foreign_file import Source


def _recognises(source: Source) -> bool:
    return source.path.suffix in (".pt", ".pth") or source.data[:4] == b"PK\x03\x04"


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    saved = read_torch_zip(source.path)
    if isinstance(saved, Mapping) and "Successors" in saved:
        raise source.error(
            "it is a growmap, which is a tree without acceptance", "Give acceptance-rate-vector.pt."
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


IMPORTER = Importer(
    "sequoia", "acceptance-rate-vector.pt of Sequoia, read without pickle", _recognises, _read
)
