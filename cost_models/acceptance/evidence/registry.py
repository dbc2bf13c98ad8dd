"""The kinds of evidence by their names, found by their place."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from specplan.cost_models.acceptance import evidence as folder
from specplan.cost_models.acceptance.evidence.base import Evidence


@cache
def evidence_kinds() -> Mapping[str, type[Evidence]]:
    """What the files of this folder declare as their `EVIDENCE`, by the name of the kind."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in names]
    kinds = [module.EVIDENCE for module in modules if hasattr(module, "EVIDENCE")]
    return {kind.kind: kind for kind in kinds}
