"""The versioned JSON form of a plan: the same fields as the text, structured."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

from specplan.ir.errors import UsageError
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
    Threads,
    TrackState,
    ValueState,
)
from specplan.ir.text.coerce import CoercionError, coerce, field_types
from specplan.ir.values import (
    NAME,
    NOT_WORDS,
    WORD,
    Atom,
    Entry,
    Range,
    Span,
    State,
    Text,
    Value,
    storable,
)

SCHEMA_VERSION = 2
_READ = (1, SCHEMA_VERSION)
_STATES = {cls.keyword: cls for cls in (CacheState, TrackState, SourceState, ValueState)}
_PLAIN = {
    cls.__name__: cls for cls in (Model, Assumptions, Round, Guard, Schedule, Region, Threads)
}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data; `plan_from_json` gives an equal plan back."""
    return {"schema_version": SCHEMA_VERSION, **_encode_fields(plan)}


def plan_from_json(data: Any) -> Plan:
    """Read `plan_to_json`'s data.

    Raises:
        UsageError: for another schema version, unknown fields, or values of the wrong kind.
    """
    if not isinstance(data, dict) or data.get("schema_version") not in _READ:
        raise UsageError(
            "not a plan of this version",
            where="plan JSON",
            remedy=f"schema_version must be {SCHEMA_VERSION}.",
        )
    fields = {key: value for key, value in data.items() if key != "schema_version"}
    try:
        return typing.cast(Plan, _build(Plan, fields))
    except RecursionError as error:
        raise UsageError("nested too deeply", where="plan JSON") from error
    except (CoercionError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"not a plan ({error})", where="plan JSON") from error


def _encode_fields(item: Any) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if value is not None and value != field.default:
            encoded[field.name] = _encode(value)
    return encoded


def _encode(value: Any) -> Any:
    match value:
        case Value():
            return {"value": str(value)}
        case State():
            return {"state": str(value)}
        case Text():
            return {"text": str(value)}
        case Span():
            return {"span": [value.start, value.stop]}
        case Range():
            return {"range": [value.low, value.high]}
        case Entry():
            return {"entry": value.name, "arguments": [[k, _encode(v)] for k, v in value.arguments]}
        case tuple():
            return [_encode(item) for item in value]
        case Op():
            return {"op": value.keyword, **_encode_fields(value)}
        case CacheState() | TrackState() | SourceState() | ValueState():
            return {"declare": value.keyword, **_encode_fields(value)}
        case _ if dataclasses.is_dataclass(value):
            return {"is": type(value).__name__, **_encode_fields(value)}
    return value


def _decode(data: Any) -> Any:
    match data:
        case {"op": keyword, **fields}:
            return _build(OPS[keyword], _keyed(fields))
        case {"declare": keyword, **fields}:
            return _build(_STATES[keyword], _keyed(fields))
        case {"is": name, **fields}:
            return _build(_PLAIN[name], _keyed(fields))
        case list():
            return tuple(_decode(item) for item in data)
    return _decode_atom(data)


def _decode_atom(data: Any) -> Atom:
    match data:
        case {"value": name}:
            return Value(_matching(NAME, name))
        case {"state": name}:
            return State(_matching(NAME, name))
        case {"text": str(text)}:
            return Text(text)
        case {"span": [int(start), int(stop)]}:
            return Span(int(_number(start)), int(_number(stop)))
        case {"range": [int() | float() as low, int() | float() as high]}:
            return Range(_number(low), _number(high))
        case {"entry": name, "arguments": arguments}:
            keys = [_matching(WORD, key) for key, _ in arguments]
            if len(set(keys)) != len(keys):
                raise CoercionError(f"{name} is given an argument twice")
            given = tuple((str(key), _argument(value)) for key, value in arguments)
            return Entry(_matching(WORD, name), given) if given else _matching(WORD, name)
        case bool():
            return data
        case int() | float():
            return _number(data)
    return _matching(WORD, data)


def _argument(data: Any) -> Atom:
    """An argument of an entry: no op and no statement."""
    return tuple(map(_argument, data)) if isinstance(data, list) else _decode_atom(data)


def _matching(pattern: re.Pattern[str], data: Any) -> str:
    if not isinstance(data, str) or not pattern.fullmatch(data) or data in NOT_WORDS:
        raise CoercionError(f"{str(data)[:40]!r} is no name")
    return data


def _number(number: float) -> float:
    if not storable(number):
        raise CoercionError("a number is too large")
    return number


def _keyed(fields: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in fields.items()}


def _build(cls: type, fields: dict[str, Any]) -> Any:
    types = field_types(cls)
    values: dict[str, Any] = {}
    if cls is Assumptions and "lossless" in fields:  # as version 1 had it
        others = {key: raw for key, raw in fields.items() if key != "lossless"}
        fields = {**others, "law": "target" if fields["lossless"] else "free"}
    renamed = dict(getattr(cls, "renamed", ()))
    for word, raw in fields.items():
        key = renamed.get(word, word)
        if key not in types:
            instead = dict(getattr(cls, "gone", ())).get(key)
            if instead is not None:
                raise CoercionError(f"{cls.__name__} {key} is gone: {instead}")
            raise CoercionError(f"{cls.__name__} has no field '{key}'")
        values[key] = coerce(types[key], _decode(raw))
    for name, other in getattr(cls, "same_as", ()):
        if other in values:
            values.setdefault(name, values[other])
    return cls(**values)
