"""The versioned JSON form of a plan: the same fields as the text, structured."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from specplan.ir.coerce import CoercionError, coerce, field_types
from specplan.ir.errors import UsageError
from specplan.ir.ops import OPS, BaseOp, Region
from specplan.ir.plan import (
    Assumptions,
    CacheState,
    Guard,
    Model,
    Plan,
    Round,
    RowGroup,
    Schedule,
    SourceState,
    TrackState,
    ValueState,
)
from specplan.ir.values import Atom, Entry, Range, Span, State, Text, Value

SCHEMA_VERSION = 1
_STATES = {cls.keyword: cls for cls in (CacheState, TrackState, SourceState, ValueState)}
_PLAIN = {
    cls.__name__: cls for cls in (Model, Assumptions, RowGroup, Round, Guard, Schedule, Region)
}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data; `plan_from_json` gives an equal plan back."""
    return {"schema_version": SCHEMA_VERSION, **_encode_fields(plan)}


def plan_from_json(data: Any) -> Plan:
    """Read `plan_to_json`'s data.

    Raises:
        UsageError: for another schema version, unknown fields, or values of the wrong kind.
    """
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            "not a plan of this version",
            where="plan JSON",
            remedy=f"schema_version must be {SCHEMA_VERSION}.",
        )
    fields = {key: value for key, value in data.items() if key != "schema_version"}
    try:
        return typing.cast(Plan, _build(Plan, fields))
    except (CoercionError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"not a plan ({error})", where="plan JSON") from error


def _encode_fields(item: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if value is not None and value != field.default:
            found[field.name] = _encode(value)
    return found


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
        case BaseOp():
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
        case {"value": name}:
            return Value(name)
        case {"state": name}:
            return State(name)
        case {"text": text}:
            return Text(text)
        case {"span": [start, stop]}:
            return Span(int(start), int(stop))
        case {"range": [low, high]}:
            return Range(low, high)
        case {"entry": name, "arguments": arguments}:
            return Entry(name, tuple((str(k), _decode(v)) for k, v in arguments))
        case list():
            return tuple(_decode(item) for item in data)
    return data


def _keyed(fields: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in fields.items()}


def _build(cls: type, fields: dict[str, Any]) -> Any:
    types = field_types(cls)
    values: dict[str, Any] = {}
    for key, raw in fields.items():
        if key not in types:
            raise CoercionError(f"{cls.__name__} has no field '{key}'")
        value = _decode(raw)
        values[key] = _checked(types[key], value)
    return cls(**values)


def _checked(hint: Any, value: Any) -> Any:
    """Atoms are checked against the field's type; dataclasses were checked when built."""
    nested = dataclasses.is_dataclass(value) and not isinstance(value, Span | Range | Entry)
    if nested or (isinstance(value, tuple) and any(_is_structure(item) for item in value)):
        return value
    return coerce(hint, typing.cast(Atom, value))


def _is_structure(item: Any) -> bool:
    if isinstance(item, tuple):
        return True
    return dataclasses.is_dataclass(item) and not isinstance(item, Span | Range | Entry)
