"""Latency of a server under load."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import number

_IDLE = number("idle_seconds", "a", "time of a request on an idle server", "s", high=1e4)
_SLOPE = number("slope_seconds", "b", "time that every further request in flight adds", "s",
                high=1e3)  # fmt: skip
_LOAD = number("load", "lambda", "requests that arrive per second", "1/s", high=1e4)
_PLAIN_IDLE = number("plain_idle_seconds", "a_0", "the same of plain decoding", "s", high=1e4)
_PLAIN_SLOPE = number("plain_slope_seconds", "b_0", "the same of plain decoding", "s", high=1e3)
_a, _b, _load = _IDLE.symbol, _SLOPE.symbol, _LOAD.symbol
_seconds = _a / (1 - _b * _load)
_plain = _PLAIN_IDLE.symbol / (1 - _PLAIN_SLOPE.symbol * _load)

LAW = FormulaSet(
    name="loaded_server",
    title="latency under load",
    source="Little 1961, with a latency linear in the requests in flight",
    variables=(_IDLE, _SLOPE, _LOAD, _PLAIN_IDLE, _PLAIN_SLOPE),
    formulas=(
        Formula(
            "speedup",
            "S",
            "latency of plain decoding over that of the plan, both under this load",
            _plain / _seconds,
        ),
        Formula("seconds", "T", "time of a request", _seconds, "s"),
        Formula("in_flight", "N", "requests in flight", _load * _seconds, "requests"),
        Formula(
            "most_load", r"\lambda_{max}", "load that the server no longer bears", 1 / _b, "1/s"
        ),
    ),
    validity=(
        "The load is below the most of both: b lambda < 1.",
        "A request takes time linear in how many are in flight, N = lambda T.",
    ),
)
