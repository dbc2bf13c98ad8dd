"""The kinds of evidence by their names, found by their place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from specplan.cost_models.acceptance import evidence as folder
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.ir.files import modules_of


@cache
def evidence_kinds() -> Mapping[str, type[Evidence]]:
    """What the files of this folder declare as their `EVIDENCE`, by the name of the kind."""
    modules = modules_of(folder.__name__, folder.__path__).values()
    kinds = [module.EVIDENCE for module in modules if hasattr(module, "EVIDENCE")]
    return {kind.kind: kind for kind in kinds}
