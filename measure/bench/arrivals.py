"""When requests arrive at a server: at a rate, or as a trace has them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from specplan.cost_models.serving.server import Traffic
from specplan.cost_models.serving.simulation import arrivals
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text

_TIME = ("seconds", "arrival", "timestamp")
_PROMPT = ("prompt_tokens", "contexttokens", "request tokens")
_OUTPUT = ("output_tokens", "generatedtokens", "response tokens")
"""Columns by the names of our own form, of Azure's traces and of BurstGPT, in lower case."""


@dataclass(frozen=True)
class Planned:
    """A request that is to arrive.

    Attributes:
        seconds: after the first one's second.
        prompt_tokens: of its prompt at most; None for all of it.
        output_tokens: that it takes; None for the workload's.
    """

    seconds: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None


def at_rate(rate: float, requests: int, burstiness: float = 1.0, seed: int = 0) -> list[Planned]:
    """Requests with gamma distributed gaps.

    Args:
        rate: requests per second.
        requests: how many.
        burstiness: squared coefficient of variation of the gaps: 1 for Poisson arrivals.
        seed: of the draws.
    """
    traffic = Traffic(rate, 1.0, 1.0, burstiness)
    return [Planned(float(s)) for s in arrivals(traffic, requests, np.random.default_rng(seed))]


def from_trace(path: Path, requests: int | None = None) -> list[Planned]:
    """Requests of a trace, from second 0 on.

    JSON Lines with `seconds` and perhaps `prompt_tokens` and `output_tokens`, or CSV with these
    columns, with those of Azure's LLM traces (TIMESTAMP, ContextTokens, GeneratedTokens) or of
    BurstGPT (Timestamp, Request tokens, Response tokens).

    Args:
        path: the file.
        requests: how many are taken; all when None.

    Raises:
        UsageError: a line has no time, or one that cannot be read.
    """
    text = read_text(path, "trace")
    rows: Iterable[Mapping[str, Any]]
    if text.lstrip().startswith("{"):
        rows = [_parsed(line, number, path) for number, line in enumerate(text.splitlines(), 1)]
    else:
        rows = csv.DictReader(text.splitlines())
    planned = [_planned(row, number, path) for number, row in enumerate(rows, 1) if row]
    if not planned:
        raise UsageError("the trace has no requests", where=str(path), remedy="Give another file.")
    planned.sort(key=lambda one: one.seconds)
    start = planned[0].seconds
    return [
        Planned(one.seconds - start, one.prompt_tokens, one.output_tokens)
        for one in planned[:requests]
    ]


def _parsed(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        row = json.loads(line) if line.strip() else {}
    except ValueError as error:
        raise UsageError(f"no JSON: {error}", where=f"{path}, line {number}") from error
    if not isinstance(row, dict):
        raise UsageError("a line is an object", where=f"{path}, line {number}")
    return row


def _planned(row: Mapping[str, Any], number: int, path: Path) -> Planned:
    fields = {str(key).strip().lower(): value for key, value in row.items()}
    time = _first(fields, _TIME)
    try:
        return Planned(_seconds(time), _count(fields, _PROMPT), _count(fields, _OUTPUT))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"request {number} has no time or length that can be read: {error}",
            where=str(path),
            remedy='Give JSON Lines such as {"seconds": 1.5, "output_tokens": 64}.',
        ) from error


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _count(fields: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = _first(fields, names)
    return None if value is None else int(value)


def _seconds(time: Any) -> float:
    """Seconds of a number, or of a time of day in ISO form."""
    try:
        return float(time)
    except ValueError:
        # Azure writes seven digits of a second's fraction
        whole, _, fraction = str(time).partition(".")
        return datetime.fromisoformat(whole).timestamp() + float(f"0.{fraction or 0}")
