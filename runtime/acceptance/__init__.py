"""Acceptance rules: one file each, pure functions of tensors.

A rule's file has `accept(tree, target, uniforms) -> Judged`, `accept_reference` (slow, as in the
paper, always equal) and `TARGET`, which says whether `target` holds "logits" or a "law". `RULES`
maps each file's name to its module.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from specplan.runtime.acceptance.tree import DraftedTree, Judged

RULES: dict[str, ModuleType] = {
    module.name: import_module(f"{__name__}.{module.name}")
    for module in iter_modules(__path__)
    if module.name != "tree"
}

__all__ = ["RULES", "DraftedTree", "Judged"]
