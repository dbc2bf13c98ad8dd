"""What an op tells an observer of itself, where types do not say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observed:
    """What an op says of itself to an observer.

    Attributes:
        name: by which devices know it, `keyword` or `keyword:variant`.
        model: that ran, by its role.
        width: nodes worked on, or query tokens, per request.
        context: slots that were attended to.
    """

    name: str
    model: str | None = None
    width: int = 1
    context: int = 0
