"""Findings of a check, the same shape for every kind of check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

Status: TypeAlias = Literal["ok", "noted", "undecided", "regressed"]
"""Unchanged; changed and fine; undecided; worse than allowed."""


@dataclass(frozen=True)
class Metric:
    """A number whose history is worth keeping; smaller is better.

    Attributes:
        name: of the number.
        value: finite.
        unit: its unit.
        low: lower bound of its interval, None for none.
        high: upper bound.
    """

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: of the checked item, stable from run to run.
        status: of the item.
        summary: one sentence.
        details: more lines, such as a diff; may be empty.
        metrics: numbers behind it.
        seconds: time of the check.
        data: everything, ready for JSON.
    """

    name: str
    status: Status
    summary: str
    details: str = ""
    metrics: tuple[Metric, ...] = ()
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """All findings of one run of `specplan check`.

    Attributes:
        kind: `plans`, `speed` or `acceptance`.
        items: one by one.
    """

    kind: str
    items: tuple[Finding, ...]

    @property
    def regressed(self) -> tuple[Finding, ...]:
        """Findings that are worse than allowed."""
        return tuple(item for item in self.items if item.status == "regressed")

    @property
    def verdict(self) -> str:
        """A summary in one sentence."""
        counts = {status: 0 for status in ("regressed", "undecided", "noted", "ok")}
        for item in self.items:
            counts[item.status] += 1
        summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"specplan check {self.kind}: {summary}"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"kind": self.kind, "verdict": self.verdict, "items": list(map(asdict, self.items))}
