"""What was not tried or may not be chosen: counted in a line, or each with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

CAUSES = {
    "acceptance": ("no acceptance data", "have no acceptance data"),
    "first choices": ("no second choices", "need second choices, which the acceptance data lacks"),
    "opt-in": ("opt-in", "are tried only if `methods` names them"),
    "excluded": ("excluded", "are excluded by `methods`"),
    "source": ("sources off", "draft from a source that `sources` leaves out"),
    "backend": ("not run by the backend", "cannot be run by the backend"),
    "limit": ("over a limit", "miss a limit"),
    "other": ("not applicable", "do not apply here"),
}
"""Kinds of reasons, in a few words and in a sentence."""
_MOST_CAUSES = 3


def not_tried_line(explanation: Mapping[str, Any]) -> str:
    """The kinds of plans that were not tried, counted by cause; empty where all were."""
    counts = Counter(entry["cause"] for entry in explanation["refused"])
    if not counts:
        return ""
    first = counts.most_common(_MOST_CAUSES)
    parts = [f"{count} {CAUSES[cause][0]}" for cause, count in first]
    rest = counts.total() - sum(count for _, count in first)
    parts += [f"{rest} others"] if rest else []
    return f"{counts.total()} kinds: {', '.join(parts)}"


def not_tried_lines(explanation: Mapping[str, Any]) -> Iterator[str]:
    """The text of `causes`, entries indented below their cause."""
    for title, entries in causes(explanation):
        yield title
        yield from (f"  {entry}" for entry in entries)


def causes(explanation: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Every family of plans that was not tried or may not be chosen, by cause, with its reason."""
    for cause, (_, words) in CAUSES.items():
        entries = [entry for entry in explanation["refused"] if entry["cause"] == cause]
        if entries:
            yield f"{len(entries)} {words}", [_entry(entry) for entry in entries]


def _entry(entry: Mapping[str, Any]) -> str:
    settings = f", {entry['settings']} settings" if entry["settings"] > 1 else ""
    return f"{entry['method']}, {entry['family']}{settings}: {entry['reason']}"
