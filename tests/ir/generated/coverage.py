"""What plans use: every op, attribute, statement and entry by name, and who reads what.

What there is to use is read off the op classes and the open tables, so that a new attribute or
entry is asked for by name before any generator knows it.
"""

from __future__ import annotations

import ast
import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from specplan.ir.formula import parse_formula
from specplan.ir.ops import OPS, Compute, Op
from specplan.ir.plan import (
    Assumptions,
    CacheState,
    Guard,
    Model,
    Plan,
    Schedule,
    SourceState,
    Threads,
    TrackState,
    ValueState,
    walk,
)
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.tables.declaration import Table
from specplan.ir.text.coerce import field_types
from specplan.ir.values import Entry, Value

NAMED_OUTSIDE = frozenset({"model.digest"})
"""What names a file or a checkpoint that no toy has."""
_STATEMENTS: tuple[tuple[str, type], ...] = (
    ("model", Model), ("assume", Assumptions), ("cache", CacheState), ("track", TrackState),
    ("source", SourceState), ("value", ValueState), ("schedule", Schedule), ("guard", Guard),
    ("threads", Threads),
)  # fmt: skip
_TABLES = typing.get_args(Table)
_ENTRIES: dict[str, Table] = {
    "accept.rule": "rule", "mix.law": "law", "assume.law": "promise", "threads.by": "threads",
    "measure.kind": "measure", "source.kind": "source", "cache.policy": "policy",
    "value.kind": "value", "forward.policy": "policy",
}  # fmt: skip


def required() -> frozenset[str]:
    """Everything that plans are to use."""
    cells = set(OPS)
    for name, cls in (*OPS.items(), *_STATEMENTS):
        for field, hint in field_types(cls).items():
            if field not in ("results", "body") and f"{name}.{field}" not in _ENTRIES:
                cells.update(_forms(f"{name}.{field}", hint))
    for table in _TABLES:
        for entry in BUILTIN.names(table):
            declared = BUILTIN.find(table, entry)
            assert declared is not None
            cells |= {f"{table} {entry}"}
            cells |= {f"{table} {entry} {parameter}" for parameter, _ in declared.parameters}
    cells |= {"region.until", "region.yields"}
    return frozenset(cells - NAMED_OUTSIDE)


def coverage(plans: Iterable[Plan]) -> Counter[str]:
    """In how many plans each thing is used.

    An attribute is used where it differs from its default; one that takes words, by each word.
    """
    return Counter(cell for plan in plans for cell in set(_used(plan)))


def readers(plans: Iterable[Plan]) -> Counter[tuple[str, str]]:
    """In how many plans the result of an op (`grow`) is read by an attribute (`pick.tree`)."""
    return Counter(pair for plan in plans for pair in set(_read(plan)))


def functions(plans: Iterable[Plan]) -> Counter[str]:
    """In how many plans formulas use each function, operator and size of a guard."""
    return Counter(word for plan in plans for word in set(_words(plan)))


def _forms(name: str, hint: Any) -> Iterator[str]:
    """An attribute, in each of the kinds of value that it takes."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        yield from (f"{name}={word}" for word in options)
    elif origin in (types.UnionType, typing.Union):
        kinds = [option for option in options if option is not type(None)]
        for kind in kinds:
            forms = list(_forms(name, kind))
            yield from [f"{name}: {_kind(kind)}"] if len(kinds) > 1 and forms == [name] else forms
    else:
        yield name


def _kind(hint: Any) -> str:
    """Kind of a value, in words."""
    names = {int: "an integer", float: "a number", str: "a word", Value: "a value"}
    if typing.get_origin(hint) is tuple:
        return "a list"
    return names.get(hint, f"a {getattr(hint, '__name__', hint).lower()}")


def _used(plan: Plan) -> Iterator[str]:
    for op in _ops(plan):
        yield op.keyword
        yield from _fields(op.keyword, op)
        if op.body is not None:
            yield from (["region.until"] if op.body.until else [])
            yield from (["region.yields"] if op.body.yields else [])
    words = {cls: name for name, cls in _STATEMENTS}
    guards = plan.schedule.guards if plan.schedule else ()
    for item in (
        *plan.models,
        plan.assumptions,
        *plan.states,
        plan.schedule,
        plan.threads,
        *guards,
    ):
        if item is not None:
            yield from _fields(words[type(item)], item)


def _fields(name: str, item: Any) -> Iterator[str]:
    """Attributes that differ from their default, and words whether or not they do."""
    cls: type = type(item)
    hints = field_types(cls)
    for field in dataclasses.fields(item):
        if field.name in ("results", "body"):
            continue
        value, key = getattr(item, field.name), f"{name}.{field.name}"
        if key in _ENTRIES:
            yield from _entry(_ENTRIES[key], value)
            continue
        forms = list(_forms(key, hints[field.name]))
        words = f"{key}={value}"
        if words in forms:
            yield words
        elif value != field.default and value is not None and value != ():
            yield key if key in forms else f"{key}: {_kind_of(value)}"
    if name == "value":
        yield from _entry("value", item.kind)


def _entry(table: Table, entry: Entry | None) -> Iterator[str]:
    if entry is not None:
        yield f"{table} {entry.name}"
        yield from (f"{table} {entry.name} {key}" for key, _ in entry.arguments)


def _kind_of(value: object) -> str:
    return "a list" if isinstance(value, tuple) else _kind(type(value))


def _ops(plan: Plan) -> Iterator[Op]:
    for item in plan.rounds:
        yield from walk(item.ops)


def _read(plan: Plan) -> Iterator[tuple[str, str]]:
    for item in plan.rounds:
        maker: dict[str, str] = {}
        for op in walk(item.ops):
            maker.update({str(name): op.keyword for name in op.results})
            maker.update({str(name): "trip" for name, _ in getattr(op, "carried", ())})
        for op in walk(item.ops):
            for field, name in _operands(op):
                yield maker[name], f"{op.keyword}.{field}"


def _operands(op: Op) -> Iterator[tuple[str, str]]:
    """Attributes of an op that read values, and the values."""
    for field, value in vars(op).items():
        if field in ("results", "body"):
            continue
        for part in value if isinstance(value, tuple) else (value,):
            for name in part if isinstance(part, tuple) and field != "carried" else (part,):
                if isinstance(name, Value):
                    yield field, str(name)
            if field == "carried":
                yield field, str(part[1])
    if op.body is not None:
        yield from (("yield", str(name)) for name in op.body.yields)
        yield from [("until", str(op.body.until))] if op.body.until is not None else []


def _words(plan: Plan) -> Iterator[str]:
    guards = plan.schedule.guards if plan.schedule else ()
    formulas = [op.formula for op in _ops(plan) if isinstance(op, Compute)]
    for formula in (*formulas, *(guard.formula for guard in guards)):
        for node in ast.walk(parse_formula(formula)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node, ast.operator | ast.cmpop | ast.boolop | ast.unaryop):
                yield type(node).__name__
    for guard in guards:
        for node in ast.walk(parse_formula(guard.formula)):
            yield from [f"guard {node.id}"] if isinstance(node, ast.Name) else []
