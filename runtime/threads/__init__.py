"""Requests that branch: one file of pure functions for each entry of the table `threads`.

An entry's file has `branches(**parameters) -> Branches`, which says when which texts begin and how
they are joined. Parameters and defaults are those of `specplan.ir.tables.builtin`. `host` runs
them; `THREADS` maps each file's name to its module.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from specplan.runtime.threads.thread import Branches, Thread

THREADS: dict[str, ModuleType] = {
    module.name: import_module(f"{__name__}.{module.name}")
    for module in iter_modules(__path__)
    if module.name not in ("host", "thread")
}

__all__ = ["THREADS", "Branches", "Thread"]
