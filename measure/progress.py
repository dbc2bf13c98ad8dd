"""Progress of long measurements."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener: `done` of `total` steps of the work named `description` are finished."""

    def __call__(self, description: str, done: int, total: int) -> None:
        """Receive progress."""


def silent(description: str, done: int, total: int) -> None:
    """The listener that shows nothing."""
