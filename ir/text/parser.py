"""Plan text to a plan: `parse_plan(print_plan(plan)) == plan`."""

from __future__ import annotations

import typing
from typing import Any

from specplan.ir.ops import OPS, Op, Region
from specplan.ir.plan import (
    Assumptions,
    CacheState,
    Guard,
    Model,
    Plan,
    Round,
    Schedule,
    SourceState,
    StateDeclaration,
    Threads,
    TrackState,
    ValueState,
)
from specplan.ir.rules.pending import with_pending
from specplan.ir.text.coerce import CoercionError, coerce, field_types
from specplan.ir.text.lexer import Token
from specplan.ir.text.reader import Reader
from specplan.ir.values import Atom, State, Text, Value

_DEEPEST = 32


def parse_plan(text: str) -> Plan:
    """Read a plan.

    Raises:
        UsageError: at the first thing that is not plan text, with line and column.
    """
    reader = Reader(text)
    reader.take("word", "plan")
    parts: dict[str, Any] = {"name": reader.name("a plan")}
    reader.take("newline")
    lists: dict[str, list[Any]] = {}
    while not reader.at("end"):
        start = reader.next
        key, value = _statement(reader)
        if key in ("assumptions", "schedule", "threads"):
            if key in parts:
                raise reader.error(f"a second statement of the plan's {key}", at=start)
            parts[key] = value
        else:
            lists.setdefault(key, []).append(value)
    parts.update({key: tuple(values) for key, values in lists.items()})
    return with_pending(Plan(**parts))


def parse_ops(text: str) -> tuple[Op, ...]:
    """Read ops alone, one per line: the body of a round."""
    reader = Reader(text)
    ops: list[Op] = []
    while not reader.at("end"):
        ops.append(_op(reader, 0))
    return tuple(ops)


def _statement(reader: Reader) -> tuple[str, Any]:
    keyword = reader.take("word")
    match keyword.text:
        case "model":
            name = reader.name("a model")
            result: tuple[str, Any] = (
                "models",
                reader.build(Model, reader.keywords(), "model", name=name),
            )
        case "assume":
            given = _with_promise(reader, reader.keywords())
            result = "assumptions", reader.build(Assumptions, given, "assume")
        case "rows":
            raise reader.error(
                "row groups are gone",
                "forward most= bounds the tokens of all requests.",
                at=keyword,
            )
        case "threads":
            count = reader.atom()
            if type(count) is not int:
                raise reader.error("threads have a number of rows", at=keyword)
            given = reader.keywords()
            result = "threads", reader.build(Threads, given, "threads", keyword, count=count)
        case "state":
            result = "states", _state(reader)
        case "round":
            name = reader.name("a round")
            region = _region(reader, 0)
            if region.yields or region.until is not None:
                raise reader.error("a round does not yield", at=keyword)
            return "rounds", Round(name=name, ops=region.ops)
        case "schedule":
            return "schedule", _schedule(reader)
        case _:
            raise reader.error(
                f"'{keyword.text}' starts no statement",
                "Statements are model, assume, threads, state, round and schedule.",
                at=keyword,
            )
    reader.take("newline")
    return result


def _with_promise(
    reader: Reader, given: dict[str, tuple[Atom, Token]]
) -> dict[str, tuple[Atom, Token]]:
    """What is assumed, where `lossless=` was written for `law=`."""
    atom, token = given.pop("lossless", (None, reader.next))
    if atom is None:
        return given
    if type(atom) is not bool or "law" in given:
        raise reader.error("lossless= is true or false, and stands in place of law=", at=token)
    return {"law": ("target" if atom else "free", token), **given}


def _state(reader: Reader) -> StateDeclaration:
    name = State(reader.take("state").text[1:])
    reader.take("mark", "=")
    kind = reader.take("word")
    if kind.text in ("cache", "track"):
        cls: Any = CacheState if kind.text == "cache" else TrackState
        model = reader.name("a model")
        given = reader.keywords()
        return typing.cast(
            StateDeclaration, reader.build(cls, given, kind.text, kind, name=name, model=model)
        )
    if kind.text in ("source", "value"):
        cls = SourceState if kind.text == "source" else ValueState
        token = reader.next
        given = {"kind": (reader.atom(), token), **reader.keywords()}
        return typing.cast(StateDeclaration, reader.build(cls, given, kind.text, kind, name=name))
    raise reader.error(
        f"'{kind.text}' is no kind of state", "Kinds are cache, track, source and value.", at=kind
    )


def _schedule(reader: Reader) -> Schedule:
    given = reader.keywords()
    reader.take("mark", "{")
    reader.take("newline")
    guards: list[Guard] = []
    while reader.accept("word", "when"):
        token = reader.next
        formula = reader.atom()
        if not isinstance(formula, Text):
            raise reader.error("a guard is a quoted formula", at=token)
        guards.append(Guard(formula=formula, round=reader.name("a round")))
        reader.take("newline")
    reader.take("word", "otherwise")
    otherwise = reader.name("a round")
    reader.take("newline")
    _close(reader)
    return reader.build(Schedule, given, "schedule", guards=tuple(guards), otherwise=otherwise)


def _close(reader: Reader) -> None:
    reader.take("mark", "}")
    reader.take("newline")


def _region(reader: Reader, depth: int) -> Region:
    if depth > _DEEPEST:
        raise reader.error(f"regions are nested deeper than {_DEEPEST}")
    reader.take("mark", "{")
    reader.take("newline")
    ops: list[Op] = []
    yields: tuple[Value, ...] = ()
    until: Value | None = None
    while not reader.at("mark", "}"):
        if reader.accept("word", "yield"):
            yields = _values(reader)
            given = reader.keywords()
            until = reader.build(Region, given, "yield", ops=(), yields=()).until
            reader.take("newline")
            break
        ops.append(_op(reader, depth))
    _close(reader)
    return Region(ops=tuple(ops), yields=yields, until=until)


def _values(reader: Reader) -> tuple[Value, ...]:
    read: list[Value] = []
    while reader.at("value"):
        read.append(Value(reader.take("value").text[1:]))
        if not reader.accept("mark", ","):
            break
    return tuple(read)


def _op(reader: Reader, depth: int) -> Op:
    results = _values(reader)
    if results:
        reader.take("mark", "=")
    token = reader.take("word")
    cls = OPS.get(token.text)
    if cls is None:
        raise reader.error(
            f"'{token.text}' is no op", f"Ops are {', '.join(sorted(OPS))}.", at=token
        )
    fields = field_types(typing.cast(type, cls))
    ready: dict[str, Any] = {"results": results, **_positional(reader, cls, token)}
    if "carried" in fields:
        ready["carried"] = _carried(reader)
    given = reader.keywords()
    if cls.rest is not None:
        ready[cls.rest] = _operands(reader, given, token)
        given = {}
    if "body" in fields:
        ready["body"] = _region(reader, depth + 1)
    else:
        reader.take("newline")
    return reader.build(cls, given, token.text, token, **ready)


def _positional(reader: Reader, cls: type[Op], token: Token) -> dict[str, Any]:
    types = field_types(typing.cast(type, cls))
    read: dict[str, Any] = {}
    for name in cls.positional:
        place = reader.next
        try:
            if typing.get_origin(types[name]) is tuple:
                read[name] = coerce(types[name], _rest(reader))
            else:
                read[name] = coerce(types[name], reader.atom())
        except CoercionError as error:
            raise reader.error(f"{token.text} {name}: {error}", at=place) from error
    return read


def _rest(reader: Reader) -> tuple[Atom, ...]:
    items: list[Atom] = []
    while reader.at("value"):
        items.append(reader.atom())
    return tuple(items)


def _carried(reader: Reader) -> tuple[tuple[Value, Value], ...]:
    pairs: list[tuple[Value, Value]] = []
    if not reader.accept("mark", "("):
        return ()
    while not reader.accept("mark", ")"):
        parameter = Value(reader.take("value").text[1:])
        reader.take("mark", "=")
        pairs.append((parameter, Value(reader.take("value").text[1:])))
        if not reader.at("mark", ")"):
            reader.take("mark", ",")
    return tuple(pairs)


def _operands(
    reader: Reader, given: dict[str, tuple[Atom, Token]], op: Token
) -> tuple[tuple[str, Value], ...]:
    for key, (atom, token) in given.items():
        if not isinstance(atom, Value):
            raise reader.error(f"{op.text} {key}: an operand is a value (%name)", at=token)
    return tuple((key, typing.cast(Value, atom)) for key, (atom, _) in given.items())
