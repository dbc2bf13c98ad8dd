"""Ops that run models, measure, judge, and write text and states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specplan.ir.base_op import BaseOp
from specplan.ir.values import Entry, Span, State, Text, Value


@dataclass(frozen=True, kw_only=True)
class Forward(BaseOp):
    """A model runs on nodes of one or several trees and gives one row per node.

    `pending` is the number of text tokens, root included, that it may catch up (one number per
    operand, or one for all); `layers` are spans of the stack, `skip` the blocks left out;
    `features` feeds hidden states of a track, shifted by `shift` nodes; `keep` records them;
    `gives=[]` computes state only; `write=scratch` drops what it wrote when the round ends.
    """

    keyword = "forward"
    positional = ("model", "nodes")
    model: str
    nodes: tuple[Value, ...]
    cache: State | None = None
    pending: int | tuple[int, ...] = 0
    layers: tuple[Span, ...] = ()
    skip: tuple[str, ...] = ()
    features: State | None = None
    shift: int = 0
    keep: State | None = None
    gives: tuple[str, ...] | None = None
    attend: Literal["ancestors", "block"] = "ancestors"
    write: Literal["exact", "scratch"] = "exact"
    only: Literal["keys_values"] | None = None


@dataclass(frozen=True, kw_only=True)
class Mix(BaseOp):
    """Target and draft rows combined by an entry of the laws, before sampling settings."""

    keyword = "mix"
    positional = ("rows",)
    rows: Value
    over: Value
    law: Entry


@dataclass(frozen=True, kw_only=True)
class Measure(BaseOp):
    """One number per request, measured on rows, a tree, a path or a cache."""

    keyword = "measure"
    positional = ("operand", "kind")
    operand: Value | State
    kind: Entry

    @property
    def variant(self) -> str:
        """What devices tell it by: its kind where it reads a law or scores."""
        counts = self.kind.name in ("count", "accepted", "lag", "uniform")
        return "" if counts else self.kind.name


@dataclass(frozen=True, kw_only=True)
class Compute(BaseOp):
    """Scalar arithmetic in a closed grammar (`specplan.ir.formula`); operands by name."""

    keyword = "compute"
    positional = ("formula",)
    formula: Text
    operands: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Uniform(BaseOp):
    """Numbers in [0, 1) from a request's own stream; an input of the round."""

    keyword = "uniform"
    positional = ("count",)
    count: int
    stream: str
    offset: int = 0
    key: Literal["round", "position"] = "round"


@dataclass(frozen=True, kw_only=True)
class Accept(BaseOp):
    """Judge a tree against target rows by a rule; gives the accepted path and its bonus."""

    keyword = "accept"
    positional = ("tree",)
    tree: Value
    target: Value | None = None
    rule: Entry = Entry("greedy")
    by: Value | None = None
    at: Value | None = None
    law: Entry = Entry("request")


@dataclass(frozen=True, kw_only=True)
class Emit(BaseOp):
    """Append a path to the text, cut after the first stop token and at the limit."""

    keyword = "emit"
    positional = ("path",)
    path: Value


@dataclass(frozen=True, kw_only=True)
class Commit(BaseOp):
    """Make the resident prefix of the emitted path permanent in a state, drop the rest."""

    keyword = "commit"
    positional = ("state", "path")
    state: State
    path: Value
    keep: Literal["path", "text"] = "path"
    alive: Value | None = None
    layers: tuple[Span, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Load(BaseOp):
    """Read a value state."""

    keyword = "load"
    positional = ("state",)
    state: State


@dataclass(frozen=True, kw_only=True)
class Store(BaseOp):
    """Write a value state."""

    keyword = "store"
    positional = ("state", "value")
    state: State
    value: Value


@dataclass(frozen=True, kw_only=True)
class Update(BaseOp):
    """Teach a source: all judged rows, or the last tokens of each leaf."""

    keyword = "update"
    positional = ("source", "tree")
    source: State
    tree: Value
    rows: Value | None = None
    last: int | None = None


@dataclass(frozen=True, kw_only=True)
class Refresh(BaseOp):
    """Rebuild a view of a cache by its policy."""

    keyword = "refresh"
    positional = ("state",)
    state: State
