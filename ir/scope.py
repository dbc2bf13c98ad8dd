"""Names in scope and their types, and what an op reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from specplan.ir.ops import Op, Region, Repeat, Segment, When
from specplan.ir.rule_error import RuleError
from specplan.ir.types import (
    ROOT,
    FlagType,
    NodesType,
    NumberType,
    PathType,
    RowsType,
    TreeType,
    Type,
    UniformsType,
)
from specplan.ir.values import State, Value

T = TypeVar("T")
WORDS = {
    TreeType: "a tree",
    NodesType: "nodes",
    RowsType: "rows",
    NumberType: "a number",
    FlagType: "a flag",
    UniformsType: "uniforms",
    PathType: "a path",
}


def operands(op: Op) -> Iterator[Value]:
    """Names an op reads, region bodies not included."""
    for name in vars(op):
        if name in ("results", "body"):
            continue
        held = getattr(op, name)
        match held:
            case Value():
                yield held
            case tuple():
                for item in held:
                    if isinstance(item, Value) and not isinstance(op, Repeat):
                        yield item
                    elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Value):
                        yield item[1]


def states(op: Op) -> Iterator[State]:
    """Names of the states an op touches."""
    for name in vars(op):
        held = getattr(op, name)
        if isinstance(held, State):
            yield held


def region_of(op: Op) -> Region | None:
    """The region an op holds, if it holds one."""
    return op.body if isinstance(op, Repeat | When | Segment) else None


def look(scope: dict[Value, Type], name: Value, what: str) -> Type:
    """The type of a name in scope, or rule `ssa` broken."""
    if name not in scope:
        raise RuleError("ssa", f"{what}: %{name} is not defined here")
    return scope[name]


def expect(scope: dict[Value, Type], name: Value, kind: type[T], what: str) -> T:
    """The type of a name, which must be of that kind, or rule `type` broken."""
    found = look(scope, name, what)
    if not isinstance(found, kind):
        words = WORDS.get(kind, kind.__name__)
        raise RuleError("type", f"{what}: %{name} is {WORDS[type(found)]}, not {words}")
    return found


def nodes_of(scope: dict[Value, Type], name: Value, what: str) -> NodesType:
    """Nodes, or a tree taken as all its nodes with the root."""
    found = look(scope, name, what)
    if isinstance(found, TreeType):
        indices = (ROOT, *range(found.nodes))
        return NodesType(len(indices), indices, found.lineage, root=True, closed=True)
    if isinstance(found, NodesType):
        return found
    raise RuleError("type", f"{what}: %{name} is {WORDS[type(found)]}, not nodes or a tree")


def join(first: Type, second: Type) -> Type:
    """The type that holds both."""
    if first == second:
        return first
    match first, second:
        case TreeType(), TreeType():
            bigger = first if first.nodes >= second.nodes else second
            return replace(
                bigger, depth=max(first.depth, second.depth),
                parents=bigger.parents if first.parents == second.parents else None, ragged=True,
                laws=first.laws | second.laws, lineage=first.lineage | second.lineage,
            )  # fmt: skip
        case RowsType(), RowsType():
            return replace(
                first, width=max(first.width, second.width), exact=first.exact and second.exact,
                indices=first.indices if first.indices == second.indices else None,
            )  # fmt: skip
        case _ if type(first) is type(second):
            return first
    raise RuleError("type", f"{WORDS[type(first)]} otherwise {WORDS[type(second)]}")
