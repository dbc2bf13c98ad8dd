"""The root class of all errors: every message says what is wrong, where, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence


class SpecplanError(Exception):
    """Root of all errors raised on purpose.

    Args:
        what: what is wrong, one sentence without a final full stop.
        where: the file, key, line or op concerned; may be empty.
        remedy: what the user can do about it; may be empty.
        errors: the single errors, where this one stands for several.
    """

    exit_code = 70

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        remedy: str = "",
        errors: Sequence[SpecplanError] = (),
    ) -> None:
        self.errors = tuple(errors)
        self.what = what
        self.where = where
        self.remedy = remedy
        head = f"{where}: {what}" if where else what
        super().__init__(f"{head}. {remedy}" if remedy else head)


class UsageError(SpecplanError):
    """Bad arguments, problem files, plan texts or data files."""

    exit_code = 2


class InfeasibleError(SpecplanError):
    """Nothing satisfies the stated limits."""

    exit_code = 3


class MissingCapabilityError(SpecplanError):
    """An extra is not installed, or a backend or model class cannot do what is asked."""

    exit_code = 4


class NothingToCompareError(SpecplanError):
    """A comparison was asked for and there is nothing on one of its sides."""

    exit_code = 5


class UndecidedError(SpecplanError):
    """What a decision rests on is not known, so that there is none to pass on."""

    exit_code = 6


class RegressionError(SpecplanError):
    """A measurement is worse than allowed."""

    exit_code = 1


def foreign_words(error: Exception) -> str:
    """What a library raised, in a line: its type and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


class RuleError(Exception):
    """A plan breaks the rule `rule`; the verifier adds where."""

    def __init__(self, rule: str, what: str) -> None:
        self.rule = rule
        self.what = what
        super().__init__(f"[{rule}] {what}")
