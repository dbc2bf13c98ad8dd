"""Names in scope and their types, and what an op reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from specplan.ir.errors import RuleError
from specplan.ir.op import Op
from specplan.ir.types.value_types import (
    ROOT,
    FlagType,
    Lineage,
    LogitsType,
    NodesType,
    NumberType,
    PathType,
    TreeType,
    Type,
    UniformsType,
)
from specplan.ir.values import State, Value

T = TypeVar("T")
WORDS = {
    TreeType: "a tree",
    NodesType: "nodes",
    LogitsType: "logits",
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
                    if isinstance(item, Value):
                        yield item
                    elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Value):
                        yield item[1]


def states(op: Op) -> Iterator[State]:
    """Names of the states an op touches."""
    for name in vars(op):
        held = getattr(op, name)
        if isinstance(held, State):
            yield held


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
    """The type that holds both.

    Raises:
        RuleError: `type`, when no value can be either.
    """
    if first == second:
        return first
    match first, second:
        case TreeType(), TreeType():
            return _join_trees(first, second)
        case NodesType(), NodesType():
            return NodesType(
                max(first.width, second.width), None, _common(first.lineage, second.lineage)
            )
        case LogitsType(), LogitsType():
            return LogitsType(
                max(first.width, second.width),
                first.indices if first.indices == second.indices else None,
                _common(first.lineage, second.lineage),
                first.model if first.model == second.model else "",
                first.exact and second.exact and first.model == second.model,
                min(first.levels, second.levels),
                first.bounded and second.bounded,
                first.root and second.root,
            )
        case UniformsType(), UniformsType():
            raise RuleError("type", "uniforms are drawn outside the region")
        case PathType(), PathType():
            raise RuleError("type", "a path is judged outside the region")
        case NumberType(), NumberType():
            return NumberType(*_either(first, second))
        case FlagType(), FlagType():
            return FlagType(*_either(first, second))
        case _ if type(first) is type(second):
            return first
    raise RuleError("type", f"{WORDS[type(first)]} otherwise {WORDS[type(second)]}")


def _either(first: NumberType | FlagType, second: NumberType | FlagType) -> tuple[bool, bool, bool]:
    """Whether one of them is drawn, calibrated or shared."""
    return (
        first.drawn or second.drawn,
        first.calibrated or second.calibrated,
        first.shared or second.shared,
    )


def _join_trees(first: TreeType, second: TreeType) -> TreeType:
    alike = first.parents == second.parents
    return TreeType(
        nodes=max(first.nodes, second.nodes),
        depth=max(first.depth, second.depth),
        parents=first.parents if alike else None,
        newest=None,
        newest_count=max(first.newest_count, second.newest_count),
        tips=first.tips and second.tips,
        ragged=True,
        chain=first.is_chain and second.is_chain,
        origins=first.origins | second.origins,
        siblings=first.siblings | second.siblings,
        dropped_draws=first.dropped_draws or second.dropped_draws,
        whole=first.whole and second.whole,
        root_logits=first.root_logits and second.root_logits,
        lineage=_common(first.lineage, second.lineage),
    )


def _common(first: Lineage | None, second: Lineage | None) -> Lineage | None:
    return None if first is None else first.common(second)
