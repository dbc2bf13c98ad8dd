"""Files of figures: every one is `{value: ..., source: ...}`, so that none goes uncited."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specplan.ir.errors import UsageError


@dataclass(frozen=True)
class Figures:
    """What a device or stack file says.

    Attributes:
        name: of the device or stack.
        values: a number, or numbers by number format, by key.
        sources: where each comes from, by key.
        basis: what an engine's figures rest on, as text.
    """

    name: str
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    basis: str = ""


def read_figures(
    text: str,
    where: str,
    kind: str,
    known: Collection[str],
    required: Collection[str] = (),
    by_format: Collection[str] = (),
    positive: Collection[str] = (),
) -> Figures:
    """Parse and check a file of figures.

    Args:
        text: the YAML.
        where: how messages call the file.
        kind: what it describes: "device" or "stack".
        known: keys that may occur.
        required: keys that must.
        by_format: keys whose value maps number formats to numbers.
        positive: keys by whose numbers is divided.

    Raises:
        UsageError: not YAML, an unknown or missing key, a figure without a source, no number, or a
            zero by which is divided.
    """
    data = _parsed(text, where)
    if not isinstance(data, dict) or data.get("schema_version") != 1:
        raise UsageError(f"not a {kind} file with schema_version: 1", where=where)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, entry in data.items():
        if key in ("schema_version", "name", "description", "basis"):
            continue
        if key not in known:
            raise UsageError(
                f"unknown key {key!r}", where=where, remedy=f"Known keys: {', '.join(known)}."
            )
        value, sources[key] = _figure(
            entry, f"{where}: {key}", key in by_format, positive=key in positive
        )
        values[key] = dict(value) if isinstance(value, dict) else value
    missing = [key for key in required if key not in values]
    if missing:
        raise UsageError(
            f"lacks {', '.join(missing)}",
            where=where,
            remedy="Add the figure as {value: ..., source: ...}.",
        )
    return Figures(str(data.get("name", where)), values, sources, str(data.get("basis", "")))


@lru_cache(maxsize=128)
def _parsed(text: str, where: str) -> Any:
    """The value of a file; a search asks for the same few devices again and again."""
    import yaml

    from specplan.ir.text.yaml_text import read_data

    try:
        return read_data(text)
    except yaml.YAMLError as error:
        raise UsageError(f"not YAML ({error})", where=where) from error


def _figure(entry: Any, where: str, by_format: bool, *, positive: bool) -> tuple[Any, str]:
    if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
        raise UsageError("not a {value: ..., source: ...}", where=where)
    value = entry["value"]
    if isinstance(value, dict) != by_format:
        expected = "number formats mapped to numbers" if by_format else "one number"
        raise UsageError(f"{value!r} where {expected} should be", where=where)
    for number in value.values() if isinstance(value, dict) else [value]:
        real = isinstance(number, int | float) and not isinstance(number, bool)
        if not real or math.isnan(number) or number < 0 or (positive and number == 0):
            least = "above 0" if positive else ">= 0"
            raise UsageError(f"{number!r} is not a number {least}", where=where)
    return value, str(entry["source"])
