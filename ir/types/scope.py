"""Names in scope and their types, and what an op reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    StatesType,
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
    StatesType: "states",
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
        attribute = getattr(op, name)
        match attribute:
            case Value():
                yield attribute
            case tuple():
                for item in attribute:
                    if isinstance(item, Value):
                        yield item
                    elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Value):
                        yield item[1]


def read_besides_judging(ops: Iterable[Op], values: Iterable[Value]) -> bool:
    """Whether some of the ops reads one of the values, or hands it on, and does not judge by it."""
    wanted = set(values)
    return any(
        not wanted.isdisjoint((*operands(op), *(() if op.body is None else op.body.yields)))
        for op in ops
        if op.judges is None
    )


def states(op: Op) -> Iterator[State]:
    """Names of the states an op touches."""
    for name in vars(op):
        attribute = getattr(op, name)
        if isinstance(attribute, State):
            yield attribute


def look(scope: dict[Value, Type], name: Value, what: str) -> Type:
    """The type of a name in scope, or rule `ssa` broken."""
    if name not in scope:
        raise RuleError(
            "ssa", f"{what}: %{name} is not defined before this op, or only in another region"
        )
    return scope[name]


def expect(scope: dict[Value, Type], name: Value, kind: type[T], what: str) -> T:
    """The type of a name, which must be of that kind, or rule `type` broken."""
    type_ = look(scope, name, what)
    if not isinstance(type_, kind):
        words = WORDS.get(kind, kind.__name__)
        raise RuleError("type", f"{what}: %{name} is {WORDS[type(type_)]}, not {words}")
    return type_


def nodes_of(scope: dict[Value, Type], name: Value, what: str) -> NodesType:
    """Nodes, or a tree taken as all its nodes with the root."""
    type_ = look(scope, name, what)
    if isinstance(type_, TreeType):
        indices = (ROOT, *range(type_.nodes))
        return NodesType(len(indices), indices, type_.lineage, root=True, closed=True)
    if isinstance(type_, NodesType):
        return type_
    raise RuleError("type", f"{what}: %{name} is {WORDS[type(type_)]}, not nodes or a tree")


def join(first: Type, second: Type) -> Type:
    """The common type of two values.

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
            raise RuleError("type", "a region cannot yield uniforms; put the uniform op outside")
        case PathType(), PathType():
            raise RuleError("type", "a region cannot yield a path; put accept outside")
        case NumberType(), NumberType():
            return NumberType(*_either(first, second))
        case FlagType(), FlagType():
            return FlagType(*_either(first, second))
        case _ if type(first) is type(second):
            return first
    raise RuleError(
        "type", f"the region yields {WORDS[type(first)]}, and otherwise= has {WORDS[type(second)]}"
    )


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
