"""Reasons why plans are not tried, or may not be chosen: in words, with the cause as data."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """The kinds of reasons."""

    ACCEPTANCE = "acceptance"
    """A drafter's acceptance is not known; a number would settle it."""
    FIRST_CHOICES = "first choices"
    """It is known, but not of the second choices that trees need."""
    LIMIT = "limit"
    """A limit of the problem, or the device's memory, is exceeded."""
    BACKEND = "backend"
    """The backend or engine cannot run it."""
    OPT_IN = "opt-in"
    """It is tried only where `methods` names it."""
    EXCLUDED = "excluded"
    """`methods` leaves it out."""
    SOURCE = "source"
    """`sources` leaves out what it drafts from."""
    OTHER = "other"


class Reason(str):
    """A reason in words that knows its cause.

    Attributes:
        cause: its kind.
    """

    cause: Cause

    def __new__(cls, words: str, cause: Cause) -> Reason:
        """A reason of a kind."""
        reason = super().__new__(cls, words)
        reason.cause = cause
        return reason


def cause_of(reason: str) -> Cause:
    """The cause of a reason; `OTHER` where it does not state one."""
    return reason.cause if isinstance(reason, Reason) else Cause.OTHER
