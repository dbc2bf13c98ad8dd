"""The closed op set: every drafting method is written with these, and nothing else.

An op is a frozen dataclass. `results` are the names it defines; `positional` lists the fields
that are printed before the keywords; every other field is printed `key=value` unless it has its
default. Nothing here bears the name of a method: rules, laws, measures, sources and cache
policies are entries of open tables (`specplan.ir.tables`).

Shapes: a *tree* has at most N drafted nodes (the root, the last token of the text, is not
counted); *rows* are one vector over the target's vocabulary per node; all values exist once per
request of the batch, with a live mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from specplan.ir.base_op import BaseOp
from specplan.ir.run_ops import (
    Accept,
    Commit,
    Compute,
    Emit,
    Forward,
    Load,
    Measure,
    Mix,
    Refresh,
    Store,
    Uniform,
    Update,
)
from specplan.ir.tree_ops import (
    Adopt,
    Graft,
    Grow,
    Lookup,
    Pick,
    Place,
    Prune,
    Relabel,
    Reroot,
    Root,
)
from specplan.ir.values import Value


@dataclass(frozen=True, kw_only=True)
class Region:
    """Ops in order and what they hand out; `until` ends the enclosing repeat when it holds."""

    ops: tuple[Op, ...] = ()
    yields: tuple[Value, ...] = ()
    until: Value | None = None


@dataclass(frozen=True, kw_only=True)
class Repeat(BaseOp):
    """At most `count` trips through the body; carried values are (parameter, initial) pairs.

    Where trips may end early (`until`), requests whose flag `only` does not hold take none.
    """

    keyword = "repeat"
    positional = ("count",)
    count: int
    carried: tuple[tuple[Value, Value], ...] = ()
    only: Value | None = None
    control: Literal["masked", "host", "device"] | None = None
    body: Region = field(default_factory=Region)


@dataclass(frozen=True, kw_only=True)
class When(BaseOp):
    """A region for the requests whose flag holds; the others take `otherwise`."""

    keyword = "when"
    positional = ("flag",)
    flag: Value
    otherwise: tuple[Value, ...] = ()
    control: Literal["masked", "host", "device"] | None = None
    body: Region = field(default_factory=Region)


@dataclass(frozen=True, kw_only=True)
class Segment(BaseOp):
    """Ops compiled and scheduled together; has no meaning of its own."""

    keyword = "segment"
    lane: str | None = None
    fuse: bool = False
    capture: bool = False
    body: Region = field(default_factory=Region)


Op: TypeAlias = (
    Root | Grow | Lookup | Place | Relabel | Graft | Pick | Prune | Reroot | Adopt
    | Forward | Mix | Measure | Compute | Uniform | Accept | Emit | Commit
    | Load | Store | Update | Refresh | Repeat | When | Segment
)  # fmt: skip
RegionOp: TypeAlias = Repeat | When | Segment

OPS: dict[str, type[Op]] = {
    op.keyword: op
    for op in (
        Root, Grow, Lookup, Place, Relabel, Graft, Pick, Prune, Reroot, Adopt,
        Forward, Mix, Measure, Compute, Uniform, Accept, Emit, Commit,
        Load, Store, Update, Refresh, Repeat, When, Segment,
    )
}  # fmt: skip

__all__ = [
    "OPS",
    "Accept",
    "Adopt",
    "BaseOp",
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
    "RegionOp",
    "Relabel",
    "Repeat",
    "Reroot",
    "Root",
    "Segment",
    "Store",
    "Uniform",
    "Update",
    "When",
]
