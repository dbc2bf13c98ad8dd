"""The closed op set: every drafting method is written with these, and nothing else.

A file holds one op, its `OP`, and is found by its place. Nothing here bears the name of a method:
rules, laws, measures, sources and cache policies are entries of open tables
(`specplan.ir.tables.builtin`). Only rules of whole rounds, passes and backends name op classes
(`tests/ir/test_ops_table.py` has the list). Everything else asks an op.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from specplan.ir.op import Op, Region
from specplan.ir.ops.accept import Accept
from specplan.ir.ops.adopt import Adopt
from specplan.ir.ops.commit import Commit
from specplan.ir.ops.compute import Compute
from specplan.ir.ops.emit import Emit
from specplan.ir.ops.forward import Forward
from specplan.ir.ops.graft import Graft
from specplan.ir.ops.grow import Grow
from specplan.ir.ops.load import Load
from specplan.ir.ops.lookup import Lookup
from specplan.ir.ops.measure import Measure
from specplan.ir.ops.mix import Mix
from specplan.ir.ops.pick import Pick
from specplan.ir.ops.place import Place
from specplan.ir.ops.prune import Prune
from specplan.ir.ops.refresh import Refresh
from specplan.ir.ops.relabel import Relabel
from specplan.ir.ops.repeat import Repeat
from specplan.ir.ops.reroot import Reroot
from specplan.ir.ops.root import Root
from specplan.ir.ops.score import Score
from specplan.ir.ops.segment import Segment
from specplan.ir.ops.store import Store
from specplan.ir.ops.uniform import Uniform
from specplan.ir.ops.update import Update
from specplan.ir.ops.when import When

OPS: dict[str, type[Op]] = {
    op.keyword: op
    for op in (import_module(f"{__name__}.{item.name}").OP for item in iter_modules(__path__))
}
"""By keyword."""

__all__ = [
    "OPS",
    "Accept",
    "Adopt",
    "Commit",
    "Compute",
    "Emit",
    "Forward",
    "Graft",
    "Grow",
    "Load",
    "Lookup",
    "Measure",
    "Mix",
    "Op",
    "Pick",
    "Place",
    "Prune",
    "Refresh",
    "Region",
    "Relabel",
    "Repeat",
    "Reroot",
    "Root",
    "Score",
    "Segment",
    "Store",
    "Uniform",
    "Update",
    "When",
]
