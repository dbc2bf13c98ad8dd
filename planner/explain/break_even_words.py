"""The law that governs a plan, and where the plan stops paying, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from specplan.planner.answer.names import plan_name
from specplan.planner.explain.numbers import about, counted, few, seconds_words, short

_NAMES = {
    "tokens": "tokens",
    "depth": "draft steps",
    "length": "draft steps",
    "draft_seconds": "a draft step",
    "verify_seconds": "verification and the rest",
    "target_seconds": "a step without speculation",
    "round_seconds": "a round",
}


_UNKNOWNS = {
    "acceptance": ("by acceptance", " times today's"),
    "draft_seconds": ("by the time of a draft step", ""),
    "batch": ("by batch size", " requests"),
    "prompt_tokens": ("by the length of the prompt", " tokens"),
    "request_rate": ("by load", " requests/s"),
}
_MOST_LOADS = 3


def formula_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """Each law with its numbers: its formula, then one sentence per cell of the workload."""
    named: set[str] = set()
    for entry in explanation["laws"]:
        yield from _law(entry, stated=entry["law"] in named)
        named.add(entry["law"])


def _law(entry: Mapping[str, Any], stated: bool) -> Iterator[str]:
    import sympy

    from specplan.cost_models.formulas.formula import load_formulas

    law = load_formulas(entry["law"])
    formula = law.formula(entry["formula"])
    variables = law.needs(formula.name)
    source = law.source.partition(":")[0].partition(";")[0]
    if not stated:
        yield (
            f"Formula {law.name} ({law.title}; {source}): {formula.name} while "
            f"decoding = {sympy.sstr(formula.expression)}."
        )
    for cell in few(entry["by_cell"], _MOST_LOADS):
        numbers = ", ".join(
            f"{v.symbol} = {_value(v.name, cell['values'][v.name])} ({_NAMES[v.name]})"
            for v in variables
        )
        gain = about(cell["speedup"], short)
        yield f"Formula {law.name} {_load(cell)}: {numbers} give {gain}."


def break_even_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per round that drafts, quantity and cell."""
    for part in explanation["break_even"]:
        yield (
            f"Where {plan_name(part)} is faster than no speculation, both estimated over a range."
        )
        for unknown, (name, _) in _UNKNOWNS.items():
            points = [point for point in part["points"] if point["unknown"] == unknown]
            for point in few(points, _MOST_LOADS):
                outside = " (extrapolated)" if point["extrapolated"] else ""
                yield f"- {name}{_load(point, ', ')}: {pays_words(point)}{outside}."


def paying_ranges(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Where speculation is faster than none: the quantity, the operating point, the range."""
    for part in explanation["break_even"]:
        for unknown, (name, _) in _UNKNOWNS.items():
            for point in part["points"]:
                if point["unknown"] == unknown:
                    fixed = (("batch", "request"), ("prompt_tokens", "prompt token"))
                    at = [counted(point[key], noun) for key, noun in fixed if point[key]]
                    outside = " (extrapolated)" if point["extrapolated"] else ""
                    yield name, ", ".join(at), f"{pays_words(point)}{outside}"


def _load(cell: Mapping[str, Any], before: str = "") -> str:
    conditions = []
    if cell["batch"] is not None:
        conditions.append(f"at batch {cell['batch']}")
    if cell["prompt_tokens"] is not None:
        conditions.append(f"with prompts of {cell['prompt_tokens']} tokens")
    return before + " ".join(conditions)


def pays_words(entry: Mapping[str, Any]) -> str:
    """Where a plan pays along one quantity, from a break-even point's data."""
    searched = f"{_amount(entry, entry['low'])} to {_amount(entry, entry['high'])}{_unit(entry)}"
    if entry["never"]:
        return f"nowhere from {searched}{_chance(entry)}"
    if entry["always"]:
        return f"everywhere from {searched}{_certainty(entry)}"
    tokens = iter(entry.get("tokens") or ())
    stretches = " and ".join(_stretch(entry, start, end, tokens) for start, end in entry["pays"])
    now = entry["now"]
    return stretches if now is None else f"{stretches}; now {about(now, seconds_words)}"


def _certainty(entry: Mapping[str, Any]) -> str:
    """What the interval says where the estimate itself knows no edge."""
    if [tuple(stretch) for stretch in entry["surely"]] == [(entry["low"], entry["high"])]:
        return ""
    parts = _stretches(entry, entry["surely"])
    return f", surely from {parts}" if parts else ", surely nowhere"


def _chance(entry: Mapping[str, Any]) -> str:
    parts = _stretches(entry, entry["perhaps"])
    return f", perhaps from {parts}" if parts else ""


def _stretches(entry: Mapping[str, Any], stretches: Any) -> str:
    return " and from ".join(
        f"{_amount(entry, low)} to {_amount(entry, high)}{_unit(entry)}" for low, high in stretches
    )


def _stretch(
    entry: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    end: Mapping[str, Any] | None,
    tokens: Iterator[Mapping[str, Any]],
) -> str:
    ends = []
    for word, edge in (("from", start), ("up to", end)):
        if edge is not None:
            write = partial(_amount, entry)
            ends.append(f"{word} {_edge(edge, write)}{_unit(entry)}")
            if entry["unknown"] == "acceptance":
                ends[-1] += f", {_edge(next(tokens), short)} tokens per step"
    return " ".join(ends)


def _edge(edge: Mapping[str, Any], write: Callable[[float], str]) -> str:
    """A break-even point with its interval, open where it leaves what was looked at."""
    low = "less" if edge["low"] is None else write(edge["low"])
    high = "more" if edge["high"] is None else write(edge["high"])
    return f"{write(edge['mean'])} ({low} to {high})"


def _amount(entry: Mapping[str, Any], value: float) -> str:
    match entry["unknown"]:
        case "draft_seconds":
            return seconds_words(value)
        case "acceptance" | "request_rate":
            return short(value)
    return f"{value:.0f}"


def _unit(entry: Mapping[str, Any]) -> str:
    return _UNKNOWNS[entry["unknown"]][1]


def _value(name: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return about(value, seconds_words if name.endswith("seconds") else short)
