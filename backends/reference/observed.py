"""What an op tells an observer of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observed:
    """What an op says of itself to an observer.

    Attributes:
        variant: in which way it worked, as devices know it.
        model: that ran, by its role.
        width: nodes worked on, or query tokens, per request.
        context: slots that were attended to.
    """

    variant: str = ""
    model: str | None = None
    width: int = 1
    context: int = 0
