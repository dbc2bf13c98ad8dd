"""Acceptance rules: one file each, pure functions of tensors.

A rule's file has

- `accept(tree, target, uniforms, **parameters) -> Judged`: the fastest form for where it runs;
- `accept_vectorised`: the same in tensor ops alone, which reads nothing on the host where the tree
  has the same shape for all rows, so that `torch.export` can trace it;
- `accept_reference`: slow, as in the paper, always equal;
- `TARGET`, which says whether `target` holds "logits" or "probabilities";
- where it judges each token alone, `passing_tokens(row, **parameters)`, which of all tokens pass.

Parameters and their defaults are those that `specplan.ir.tables.acceptance` declares. `RULES` maps
each file's name to its module.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from specplan.runtime.acceptance.tree import DraftedTree, Judged

RULES: dict[str, ModuleType] = {
    module.name: import_module(f"{__name__}.{module.name}")
    for module in iter_modules(__path__)
    if module.name != "tree" and not module.name.startswith("_")
}

__all__ = ["RULES", "DraftedTree", "Judged"]
